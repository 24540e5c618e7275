"""Tests: the relay's compatibility layer for the published prototype."""
