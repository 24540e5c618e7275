"""Moving a vault from the relay in this home to one that other machines reach.

::

    local --vault made there, objects copied as they are--> local --config.json names it--> moved --> state/relay removed

Nothing is founded, sealed or embedded anew. A move that was cut off is begun again, and finds what is there already. Until
``config.json`` names the new relay, this home uses its own; what was written to that in the last moment is put back by the next
round, as after any loss at a relay.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from crystal_node.base.settings import LOCAL_RELAY, Settings
from crystal_node.device.device import opened
from crystal_node.device.relay import open_store
from crystal_node.device.runner import store_failure
from crystal_relay.errors import AlreadyExists, NotFound, RelayError
from crystal_relay.keys import vault_prefix
from crystal_relay.store import Listed, Store

META_RELAY_LOST = "node.relay-lost"
"""In the journal: the relay may lack parts of files that this device has, until a round of files has looked."""
COPIES_AT_ONCE = 8
"""Each in memory: at most 8 MiB."""

_log = logging.getLogger(__name__)

MoveProgress = Callable[[str, int, int], None]
"""What is done, bytes so far, bytes in all."""


@dataclass(frozen=True, slots=True)
class RelayAccess:
    """A relay, and this device's token there."""

    settings: Settings
    token: str = field(repr=False)


async def copy_objects(
    source: RelayAccess, target: RelayAccess, vault: bytes, device: bytes, progress: MoveProgress
) -> None:
    """Copies the vault's objects from one relay to another. What other devices own, they put there themselves.

    Raises:
        StoreFailure: one of the relays cannot be reached, or refuses.
    """
    # Lazy: it loads the server.
    from crystal_relay.server.admin import RemoteOperator

    async with (
        open_store(source.settings, vault=vault, token=source.token) as there,
        open_store(target.settings, vault=vault, token=target.token) as here,
    ):
        try:
            await there.list(vault_prefix(vault.hex()), limit=1)  # from now on somebody serves it
            await RemoteOperator(source.settings.home.relay).sweep()  # what is condemned stays behind
            listed = [each async for each in _objects(there, vault, device)]
            total, done = sum(each.size for each in listed), 0
            for first in range(0, len(listed), COPIES_AT_ONCE):
                batch = listed[first : first + COPIES_AT_ONCE]
                for outcome in await asyncio.gather(
                    *(_copy(there, here, each.key) for each in batch), return_exceptions=True
                ):
                    if outcome is not None:
                        raise outcome
                done += sum(each.size for each in batch)
                progress("copying to the new relay", done, total)
        except RelayError as error:
            raise store_failure(error) from error


def drop_own_relay(settings: Settings) -> None:
    """Removes the relay in the home if the vault has another one. What cannot be removed stays, and is logged.

    Files that were changed while the vault moved may have left parts at this relay only: the next rounds offer them again.
    """
    folder = settings.home.relay
    if settings.config.relay_url in ("", LOCAL_RELAY) or not folder.is_dir():
        return
    with opened(settings) as device, device.journal.transaction() as transaction:
        transaction.meta_set(META_RELAY_LOST, b"1")
    try:
        shutil.rmtree(folder)
    except OSError as error:
        _log.warning("%s cannot be removed: %s", folder, error.strerror)


async def _objects(store: Store, vault: bytes, device: bytes) -> AsyncIterator[Listed]:
    """All that this device may write, in the order of their names."""
    prefix, after = vault_prefix(vault.hex()), ""
    own = device.hex()
    while True:
        page = await store.list(prefix, after=after)
        for each in page.entries:
            channel, _, name = each.key.removeprefix(prefix).partition("/")
            if channel == "invite" or (channel in _OWNED and not name.startswith(own)):
                continue
            yield each
        if not page.more:
            return
        after = page.entries[-1].key


_OWNED = ("conversations", "commands", "cursor")


async def _copy(source: Store, target: Store, key: str) -> None:
    try:
        data = await (await source.get(key)).read()
    except NotFound:
        return  # deleted meanwhile
    try:
        await target.put_new(key, data)
    except AlreadyExists:
        if f"/{_OVERWRITTEN}/" in key:
            await target.put(key, data)


_OVERWRITTEN = "cursor"
