"""Snapshots: creation, announcement and restore; the blobs and packs on the relay."""
