"""Backups: made while others write, kept, read back, and brought back."""
