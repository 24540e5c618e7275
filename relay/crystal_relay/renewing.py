"""Letting go of connections that may be dead: the port beside `Store`.

After sleep, or on another network, a connection may look alive for many minutes, though nobody is at its other end. Who notices
such a change renews the store: what is under way on the old connections fails with StoreUnavailable at once, and whatever
comes next opens new ones. Stores without connections have nothing to renew.
"""

from typing import Protocol, runtime_checkable

from crystal_relay.store import Store


@runtime_checkable
class Renewable(Protocol):
    """What has connections."""

    async def renew(self) -> None:
        """Close them all; the store goes on with new ones."""
        ...


async def renew(store: Store) -> None:
    """Does it, if there is anything to do."""
    if isinstance(store, Renewable):
        await store.renew()
