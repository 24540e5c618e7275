"""Tests of the wing derive."""
