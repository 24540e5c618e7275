"""Tests: core/snapshots."""
