"""Tests: the memory as an MCP server."""
