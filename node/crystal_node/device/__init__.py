"""A device: its keys, journal, relay client, and how a home becomes one."""
