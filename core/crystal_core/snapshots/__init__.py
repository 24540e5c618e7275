"""Snapshots of the replicated state: exported from one memory in parts, loaded into another."""
