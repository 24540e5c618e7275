"""Pairing by invite: over a real relay, by real processes, and against a relay that is hostile."""
