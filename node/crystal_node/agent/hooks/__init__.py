"""Hooks in other programs that wake Crystal: which ones, and how they come into those programs' settings and out again."""
