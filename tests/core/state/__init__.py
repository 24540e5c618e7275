"""Tests: core/state."""
