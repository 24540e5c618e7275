"""Crystal's replication protocol, pure: it takes bytes and events and yields requests."""
