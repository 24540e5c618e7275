"""Pairing, backups, recovery, export and import."""
