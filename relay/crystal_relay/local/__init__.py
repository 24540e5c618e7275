"""The store in a directory: SQLite for small objects, files for large ones. `LocalStore` is all that others use."""

from crystal_relay.local.store import LocalStore

__all__ = ["LocalStore"]
