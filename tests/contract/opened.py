"""A store that was opened for the contract's tests, and what these tests share."""

import asyncio
import os
import secrets
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest_asyncio

from crystal_relay.limits import LIST_LIMIT_MAX
from crystal_relay.store import Store

WAKE_SECONDS_MAX = 5.0
"""A sleeper that is not woken by then is not woken."""


AMOUNT = float(os.environ.get("CRYSTAL_TEST_AMOUNT", "1"))
"""Races over a network are run that many times as often; 4 is for a machine that has an hour."""


def rounds(count: int) -> int:
    """Of a race, by AMOUNT."""
    return max(1, round(count * AMOUNT))


@dataclass
class Opened:
    """A store, and names in it that it takes: those of one vault."""

    store: Store
    vault: str = field(default_factory=lambda: secrets.token_hex(16))
    device: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def root(self) -> str:
        return f"v/{self.vault}/"

    @property
    def channel(self) -> str:
        """What all keys of `key` begin with."""
        return f"{self.root}mirror/"

    def key(self, name: str, epoch: str = "0000000001") -> str:
        """A key that is written once."""
        return f"{self.channel}{epoch}/{name}"

    def blob(self, name: str) -> str:
        """A key that is written once and may hold megabytes."""
        return f"{self.root}blob/{name}"

    @property
    def cursor(self) -> str:
        """A key that is overwritten."""
        return f"{self.root}cursor/{self.device}"


class OpensStore:
    """What all parts of the contract build on."""

    race_rounds = 200
    many_keys = 300
    paged_keys = 2_100
    page_keys = LIST_LIMIT_MAX
    big_bytes = 3 * 1024 * 1024 + 17

    @abstractmethod
    def opened(self, tmp_path: Path) -> AbstractAsyncContextManager[Opened]:
        """An empty store, closed at the end."""

    @pytest_asyncio.fixture
    async def at(self, tmp_path: Path) -> AsyncIterator[Opened]:
        async with self.opened(tmp_path) as opened:
            yield opened


async def read(store: Store, key: str, *, start: int = 0, length: int | None = None) -> bytes:
    return await (await store.get(key, start=start, length=length)).read()


async def names(store: Store, prefix: str) -> list[str]:
    return [entry.key for entry in (await store.list(prefix)).entries]


async def stream(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        await asyncio.sleep(0)
        yield piece
