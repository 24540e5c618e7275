"""Tests of the background jobs."""
