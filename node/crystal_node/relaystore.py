"""The relay as this device uses it: the HTTP store, repeating what may be repeated."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from crystal_node.settings import Settings
from crystal_relay.client import HttpStore


@asynccontextmanager
async def open_http(settings: Settings, *, vault: bytes, token: str) -> AsyncGenerator[HttpStore, None]:
    """The plain client, for managing vaults and tokens. Raises BadRequest for an address that cannot be used."""
    store = HttpStore(settings.relay_url, vault=vault, token=token, allow_insecure=settings.allow_http)
    try:
        yield store
    finally:
        await store.aclose()
