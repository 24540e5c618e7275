"""Announcements of an operator's command to the running processes after it has changed the store."""

import asyncio
import secrets
from dataclasses import dataclass

from crystal_relay.server.peers.messages import News
from crystal_relay.server.peers.records import ProcessRecords
from crystal_relay.server.peers.transport import AnotherProcess, NotHeard, PeerConnection
from crystal_relay.store import Store

_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class AnnouncementResult:
    """How many running processes heard it. The others find out by themselves within five minutes."""

    heard: int
    not_heard: int


async def announce_forget(store: Store, vault: str) -> AnnouncementResult:
    """Tell all relay processes over the store that the vault's credentials, or its state, changed."""
    records = ProcessRecords(store)
    secret = await records.known_secret()
    if secret is None:
        return AnnouncementResult(0, 0)
    origin = secrets.token_hex(8)
    places = asyncio.Semaphore(_AT_ONCE)

    async def tell(name: str) -> bool:
        async with places:
            process = await records.process(name)
            if process is None:
                return False
            try:
                line = PeerConnection(process.url)
            except NotHeard:
                return False
            try:
                await line.tell(secret, News(origin=origin, to=name, sequence=1, forget=[vault]))
            except (NotHeard, AnotherProcess):
                return False
            finally:
                await line.aclose()
            return True

    told = await asyncio.gather(*(tell(name) for name in await records.names()))
    return AnnouncementResult(sum(told), len(told) - sum(told))
