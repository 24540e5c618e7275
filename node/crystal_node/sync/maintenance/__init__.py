"""Keeping the vault's copies small and whole: verification, repair, snapshots, retention, changing the embedding model."""
