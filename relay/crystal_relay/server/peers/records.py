"""Records of relay processes in the store.

r/secret/peers        32 random bytes in hex, written once by the first process
r/process/<name>      one for each serving process: its name, its address, and since when
"""

import re
import secrets
from dataclasses import dataclass

import msgspec

from crystal_relay.errors import UNDECODABLE, AlreadyExists, NotFound, StoreDamaged
from crystal_relay.server.peers.messages import ProcessName, Url
from crystal_relay.store import Store

SECRET_KEY = "r/secret/peers"  # noqa: S105  (where it is, not what it is)
PROCESSES = "r/process/"
_SECRET_BYTES = 32
_NAME = re.compile(r"[0-9a-f]{16}\Z")


class _Process(msgspec.Struct, frozen=True):
    name: ProcessName
    url: Url
    since: int


@dataclass(frozen=True, slots=True)
class Process:
    """A serving process and the URL at which others reach it."""

    name: str
    url: str


class ProcessRecords:
    """The records in one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def secret(self) -> bytes:
        """The secret that the processes share, made if there is none."""
        known = await self.known_secret()
        if known is not None:
            return known
        fresh = secrets.token_bytes(_SECRET_BYTES)
        try:
            await self._store.put_new(SECRET_KEY, fresh.hex().encode())
        except AlreadyExists:
            return await self.secret()
        return fresh

    async def known_secret(self) -> bytes | None:
        """The secret, if any process ever made one."""
        try:
            text = await (await self._store.get(SECRET_KEY)).read()
        except NotFound:
            return None
        try:
            secret = bytes.fromhex(text.decode("ascii"))
        except ValueError:
            secret = b""
        if len(secret) != _SECRET_BYTES:
            raise StoreDamaged("the secret of the relay's processes is damaged")
        return secret

    async def enter(self, process: Process, *, since: int) -> None:
        """Put a process on the list. `since`: Unix seconds, for people."""
        record = _Process(process.name, process.url, since)
        await self._store.put(PROCESSES + process.name, msgspec.json.encode(record))

    async def remove(self, name: str) -> None:
        """Take a process off the list. No error if it is not there."""
        await self._store.delete(PROCESSES + name)

    async def names(self) -> set[str]:
        """The names of all processes on the list. One LIST for each thousand."""
        names: set[str] = set()
        after, more = "", True
        while more:
            page = await self._store.list(PROCESSES, after=after)
            names |= {entry.key.removeprefix(PROCESSES) for entry in page.entries}
            more = page.more
            after = page.entries[-1].key if page.entries else after
        return {name for name in names if _NAME.match(name)}

    async def process(self, name: str) -> Process | None:
        """The process of that name; None if it has left, or its record cannot be read."""
        try:
            text = await (await self._store.get(PROCESSES + name)).read()
            record = msgspec.json.decode(text, type=_Process)
        except (NotFound, *UNDECODABLE):
            return None
        return Process(record.name, record.url) if record.name == name else None
