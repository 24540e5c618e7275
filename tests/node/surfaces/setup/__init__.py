"""Setting a machine up, and undoing it."""
