"""Tests: mirror."""
