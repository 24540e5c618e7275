"""Benchmarks: bench/README.md says how to run and to write them."""
