"""The memory files that AI tools keep themselves, in step between a person's devices."""
