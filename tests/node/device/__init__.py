"""Tests of the wing device."""
