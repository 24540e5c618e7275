"""Tests: core/embed."""
