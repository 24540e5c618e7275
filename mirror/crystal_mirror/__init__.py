"""The replication protocol, pure: bytes and events in, requests out. See ``README.md`` for the order to read it in."""
