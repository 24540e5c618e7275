"""Tests: core/weaver."""
