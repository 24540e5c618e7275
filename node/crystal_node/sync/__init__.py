"""Replication on a device: rounds, files, members, moving the Core, maintenance, and the watch that drives them."""
