"""The relay's HTTP server: `create_app(store, settings)` makes it, `serving.serve` runs it."""

from crystal_relay.server.app import create_app
from crystal_relay.server.settings import RelaySettings

__all__ = ["RelaySettings", "create_app"]
