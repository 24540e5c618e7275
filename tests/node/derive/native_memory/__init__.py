"""Tests of the memory files of AI tools that are kept in step."""
