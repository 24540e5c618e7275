"""Tests: the gateway, and its web page in a real browser."""
