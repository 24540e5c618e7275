"""What a device does to keep the vault's copies small and whole: snapshots, repair, and what is said of a forget."""
