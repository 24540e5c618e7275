"""What keeps the vault's copies small and whole: snapshots, pruning, forgetting, repair."""
