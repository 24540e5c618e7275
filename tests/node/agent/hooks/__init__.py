"""Tests of the hooks in other programs' settings."""
