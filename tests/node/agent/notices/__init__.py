"""Tests of desktop notices."""
