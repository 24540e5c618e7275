"""What the relay may delete, and when: garbage collection, forgets that are still in reach, pruning."""
