"""Tests of the Core's catalog."""
