"""A Crystal device: capture, outbox, sync, command line; the composition root."""
