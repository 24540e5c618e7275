"""Names that were condemned, on a real relay: what is written under them afterwards goes as well, however late.

The relay deletes by name, some time after it was asked: what stands there then, not what stood there. So whoever condemns
publishes it first and never writes such a name again: a Core puts nothing back below its floor, and content that returns
returns under the next turn's name. Waiting until a deletion was seen to be done would not do: a sweeper that was killed, or
another process's that is slow, carries it out once more.
"""

import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.requests import Condemn, Flow, GetBlob, PutBlob, PutNew, Request
from crystal_mirror.store_keys import StoreKeys
from crystal_node.device.runner import Runner
from crystal_relay.errors import StoreUnavailable
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server.sweeper import Sweeper
from crystal_relay.store import Page, Store
from tests.support.relay_server import enrolled, served

EPOCH, FLOOR, END = 1, 6, 10


@dataclass
class Core:
    """A device that leads, as far as the relay knows."""

    runner: Runner
    keys: StoreKeys
    bucket: Store

    async def ask(self, request: Request) -> Any:
        def flow() -> Flow[Any]:
            return (yield request)

        return await self.runner.run(flow())

    async def put_slots(self, first: int, end: int = END) -> None:
        for slot in range(first, end):
            await self.ask(PutNew(self.keys.mirror(EPOCH, slot), b"sealed once, put back as it was"))

    async def condemn_below_the_floor(self) -> None:
        prefix = self.keys.epoch_prefix(EPOCH)
        await self.ask(Condemn(prefix=prefix, through=self.keys.mirror(EPOCH, FLOOR - 1)))

    async def slots(self) -> list[int | None]:
        prefix = self.keys.epoch_prefix(EPOCH)
        return [self.keys.parse_slot(prefix, entry.key) for entry in (await self.bucket.list(prefix)).entries]

    async def lose_everything(self) -> None:
        """What a careless operator does: the vault's objects go, what the relay has on record stays."""
        for entry in (await self.bucket.list(self.keys.root)).entries:
            await self.bucket.delete(entry.key)


@asynccontextmanager
async def core_at(bucket: Store) -> AsyncGenerator[Core]:
    async with served(bucket) as relay:
        member = await enrolled(relay.url)
        client = member.store(relay.url)
        yield Core(Runner(client, None), StoreKeys(bytes.fromhex(member.vault)), bucket)
        await client.aclose()


async def sweep(bucket: Store) -> None:
    assert not (await Sweeper(bucket, clock=lambda: time.time() + 1).run()).failures


async def test_what_is_put_back_from_the_floor_on_outlives_a_deletion_that_was_pending() -> None:
    async with core_at(MemoryStore()) as core:
        await core.put_slots(0)
        await core.condemn_below_the_floor()
        await core.lose_everything()
        await core.put_slots(FLOOR)
        await sweep(core.bucket)
        assert await core.slots() == list(range(FLOOR, END))


async def test_what_is_put_back_below_the_floor_is_deleted_by_the_request_that_came_before_it() -> None:
    """Why no Core does: its readers would see entries come and go."""
    async with core_at(MemoryStore()) as core:
        await core.put_slots(0)
        await core.condemn_below_the_floor()
        await core.lose_everything()
        await core.put_slots(0)
        await sweep(core.bucket)
        assert await core.slots() == list(range(FLOOR, END))


async def test_a_deletion_reaches_nothing_that_is_written_after_it_beyond_its_last_name() -> None:
    async with core_at(MemoryStore()) as core:
        await core.put_slots(0, FLOOR)
        await core.condemn_below_the_floor()
        await core.put_slots(FLOOR)
        await core.ask(PutNew(core.keys.mirror(EPOCH + 1, 0), b"the next epoch begins at slot 0 again"))
        await sweep(core.bucket)
        assert await core.slots() == list(range(FLOOR, END))
        assert await core.ask(GetBlob(core.keys.mirror(EPOCH + 1, 0))) is not None


class KilledBeforeItsRecordGoes(MemoryStore):
    """Of its sweeper: everything is deleted but what says so."""

    killed = True

    async def delete(self, key: str) -> None:
        if self.killed and key.startswith(("r/condemned/", "r/expiry/")):
            raise StoreUnavailable("killed")
        await super().delete(key)


async def test_a_deletion_that_was_seen_to_be_done_can_be_done_once_more_by_the_next_sweeper() -> None:
    async with core_at(bucket := KilledBeforeItsRecordGoes()) as core:
        await core.put_slots(0)
        await core.condemn_below_the_floor()
        await Sweeper(bucket, clock=lambda: time.time() + 1).run()
        assert await core.slots() == list(range(FLOOR, END)), "done, as far as anybody can see"
        await core.put_slots(0)
        bucket.killed = False
        await sweep(bucket)
        assert await core.slots() == list(range(FLOOR, END))


async def test_a_slow_sweeper_deletes_after_another_one_was_done_with_it() -> None:
    """Two relay processes over one bucket: the request's record is gone, and yet it is not over."""

    class Overtaken(MemoryStore):
        core: Core | None = None

        async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
            if self.core is not None and prefix == self.core.keys.epoch_prefix(EPOCH):
                core, self.core = self.core, None
                await sweep(self)
                assert (await self.list("r/condemned/")).entries == ()
                await core.put_slots(0)
            return await super().list(prefix, after=after, limit=limit)

    async with core_at(bucket := Overtaken()) as core:
        await core.put_slots(0)
        await core.condemn_below_the_floor()
        bucket.core = core
        await sweep(bucket)
        assert await core.slots() == list(range(FLOOR, END))


@pytest.mark.parametrize("seen_gone", [False, True], ids=["while it is pending", "after it was done"])
async def test_content_that_comes_back_takes_the_next_turns_name(seen_gone: bool, tmp_path: Path) -> None:
    """Under its old name a create-only write finds the condemned blob there, takes it for its own, and loses it."""
    secret, content = VaultSecret(secrets.token_bytes(32)), sha256(b"content").digest()
    bucket = LocalStore(tmp_path / "store")
    async with core_at(bucket) as core:
        old, new = (core.keys.blob(secret.blob_name(content, turn)) for turn in (0, 1))
        assert await core.ask(PutBlob(old, b"sealed content"))
        await core.ask(Condemn(keys=(old,)))
        if seen_gone:
            await sweep(bucket)
            await core.ask(Condemn(keys=(old,)))
        assert await core.ask(PutBlob(old, b"sealed content")) is seen_gone
        assert await core.ask(PutBlob(new, b"sealed content"))
        await sweep(bucket)
        assert await core.ask(GetBlob(old)) is None
        assert await core.ask(GetBlob(new)) == b"sealed content"
    await bucket.aclose()
