"""Conversations written out."""
