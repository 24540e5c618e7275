"""Tests: core/search."""
