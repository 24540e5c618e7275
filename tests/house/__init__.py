"""Tests: house."""
