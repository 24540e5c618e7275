"""Tests of the store in a bucket: what servers and networks do to it, and what it must make of that."""
