"""Tests of the wing sync."""
