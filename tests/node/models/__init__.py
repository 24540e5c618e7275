"""Tests of the wing models."""
