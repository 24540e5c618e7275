"""Snapshots of the replicated state: parts as bytes, exported from one memory and loaded into another."""
