"""Tests of the wing search."""
