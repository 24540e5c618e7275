"""Tests of the wing base."""
