"""Copies of raw sessions: layout, relations, reading, writing, redaction, forget, retention."""
