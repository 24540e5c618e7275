"""Tests: node/weaving."""
