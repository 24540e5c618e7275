"""Capture: reading the conversations of AI tools where those tools leave them. See README.md."""
