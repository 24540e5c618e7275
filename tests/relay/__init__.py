"""Tests: relay."""
