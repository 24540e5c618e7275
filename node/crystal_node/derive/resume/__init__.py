"""Continuing an AI tool's session on this machine: where it goes, what is written, what another tool is told of it."""
