"""When each reader last asked for its drops, and how many were deleted without it.

    r/v1/read/<space>/<id>     `{"version", "at", "missed"}`

Written at most once an hour for each reader. It decides only which drops may be deleted from a full space.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from crystal_prototype.relay.tokens import V1Holder
from crystal_relay.errors import UNDECODABLE, NotFound, RelayError
from crystal_relay.store import Store

MARK_MS = 3_600_000
ABSENT_MS = 24 * 3_600_000
"""A reader that has not asked for so long is absent. It is as long as the prototype's own relay keeps a drop."""
FIRST_MS = 3_600_000
"""How long after its start a process takes no reader for absent: those that could not ask while no relay ran, or asked one that
noted nothing, have asked by then."""
_VERSION = 1
_log = logging.getLogger("crystal_relay.server")


class _Record(msgspec.Struct, frozen=True):
    version: int
    at: int
    missed: int


@dataclass(frozen=True, slots=True)
class Presence:
    """``at``: milliseconds since 1970, 0 if it never asked. ``missed``: drops that were deleted before it confirmed them."""

    at: int = 0
    missed: int = 0


class Presences:
    """The marks of one relay process. Several may share a store."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._noted: dict[str, int] = {}
        self._began = int(clock() * 1000)

    def absent(self, presence: Presence) -> bool:
        """Whether a reader has not asked for a day. Nobody counts as absent in the process's first hour."""
        now = int(self._clock() * 1000)
        return now - self._began > FIRST_MS and now - presence.at > ABSENT_MS

    async def note(self, reader: V1Holder) -> None:
        """The reader asks for its drops. It gets them also if the mark cannot be written, as on a full disk."""
        now = int(self._clock() * 1000)
        if now - self._noted.get(reader.id, -MARK_MS) < MARK_MS:
            return
        try:
            kept = await self.of(reader)
            if now - kept.at >= MARK_MS:
                await self._write(reader, Presence(now, kept.missed))
        except RelayError as error:
            _log.warning("cannot note when a v1 device last asked: %s", error)
            return
        self._noted[reader.id] = now

    async def missed(self, reader: V1Holder, count: int) -> None:
        """That many drops are deleted before the reader confirmed them."""
        kept = await self.of(reader)
        await self._write(reader, Presence(kept.at, kept.missed + count))

    async def of(self, reader: V1Holder) -> Presence:
        """What is known of the reader."""
        try:
            record = msgspec.json.decode(await (await self._store.get(_key(reader))).read(), type=_Record)
        except NotFound:
            return Presence()
        except UNDECODABLE:
            return Presence()  # it is written again when the reader asks
        return Presence(record.at, record.missed)

    async def _write(self, reader: V1Holder, presence: Presence) -> None:
        record = _Record(_VERSION, presence.at, presence.missed)
        await self._store.put(_key(reader), msgspec.json.encode(record))


def _key(reader: V1Holder) -> str:
    return f"r/v1/read/{reader.space}/{reader.id}"
