"""Tests: node."""
