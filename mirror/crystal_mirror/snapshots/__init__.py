"""Snapshots: made, read back, announced and restored from; blobs, packs, and the base below which nothing is kept."""
