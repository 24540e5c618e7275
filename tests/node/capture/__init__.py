"""Tests: node/capture."""
