"""Tests: commands between real devices."""
