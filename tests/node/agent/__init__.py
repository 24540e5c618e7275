"""Tests of the wing agent."""
