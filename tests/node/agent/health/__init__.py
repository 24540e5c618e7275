"""Tests: node/health."""
