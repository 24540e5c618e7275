"""Files that are made from the memory: what they say, that they follow it, and what becomes of them when somebody dies."""
