"""Pairing, backup, recovery, export and import."""
