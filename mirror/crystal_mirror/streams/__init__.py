"""This device's own stream: the outbox, and operations that are offered again."""
