"""Rounds of replication, files, members, moving the Core, and the watch that drives them."""
