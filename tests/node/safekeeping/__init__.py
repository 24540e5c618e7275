"""Tests of the wing safekeeping."""
