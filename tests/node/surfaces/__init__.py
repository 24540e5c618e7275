"""Tests of the wing surfaces."""
