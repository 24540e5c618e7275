"""A device: its keys, journal and relay client, and how a home becomes one. See README.md."""
