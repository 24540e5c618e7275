"""Searching and reading the memory of this device: requests, answers, and what answers them. See ``search/README.md``."""
