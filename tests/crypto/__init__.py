"""Tests: crypto."""
