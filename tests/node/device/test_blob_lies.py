"""Relays that lie about blobs: what a device holds of them is bounded, and proves itself or is thrown away."""

import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any

import pytest

from crystal_crypto.blob import open_blob, seal_blob
from crystal_crypto.errors import Malformed, WrongKey
from crystal_crypto.hierarchy import GenerationKey, VaultSecret
from crystal_crypto.limits import BLOB_BYTES_MAX
from crystal_mirror.requests import Condemn, Flow, GetBlob, Has, PutBlob, Request, StoreFailure
from crystal_mirror.store_keys import StoreKeys
from crystal_node.device.runner import Runner
from crystal_relay.errors import StoreUnavailable
from crystal_relay.memory import MemoryStore
from crystal_relay.store import Object
from tests.support.hostile_relay import HostileRelay, Seen, hostile_relay
from tests.support.relay_server import enrolled, served

SECRET, KEY = VaultSecret(secrets.token_bytes(32)), GenerationKey.generate(1)
CONTENTS = (b"first" * 1000, b"second" * 1000)


def _asking(request: Request) -> Flow[Any]:
    return (yield request)


@dataclass
class Deceived:
    """A device's runner, a relay's operator between it and a real relay, and two blobs that lie there."""

    runner: Runner
    hostile: HostileRelay
    keys: StoreKeys
    vault: bytes
    names: tuple[bytes, bytes]

    async def ask(self, request: Request) -> Any:
        return await self.runner.run(_asking(request))

    def opened(self, stored: bytes, name: bytes) -> bytes:
        content = CONTENTS[self.names.index(name)]
        digest = sha256(content).digest()
        return b"".join(open_blob([stored], content_hash=digest, name=name, vault=self.vault, key=KEY))


@asynccontextmanager
async def deceived() -> AsyncGenerator[Deceived]:
    async with served(MemoryStore()) as relay:
        member = await enrolled(relay.url)
        vault = bytes.fromhex(member.vault)
        with hostile_relay(relay.url) as hostile:
            client = member.store(hostile.url)
            names: list[bytes] = []
            runner, keys = Runner(client, None), StoreKeys(vault)
            for content in CONTENTS:
                digest = sha256(content).digest()
                sealed = seal_blob(
                    [content],
                    length=len(content),
                    content_hash=digest,
                    vault=vault,
                    key=KEY,
                    name=SECRET.blob_name(digest),
                    salt=secrets.token_bytes(24),
                )
                names.append(SECRET.blob_name(digest))
                assert await runner.run(_asking(PutBlob(keys.blob(names[-1]), b"".join(sealed))))
            yield Deceived(runner, hostile, keys, vault, (names[0], names[1]))
            await client.aclose()


def _is_read(seen: Seen) -> bool:
    return seen.method == "GET" and "/objects/blob/" in seen.path


async def test_another_blobs_bytes_are_no_content() -> None:
    async with deceived() as at:
        mine, other = at.names
        others = await at.ask(GetBlob(at.keys.blob(other)))
        at.hostile.answers = lambda seen: seen.saying(others) if _is_read(seen) else seen
        got = await at.ask(GetBlob(at.keys.blob(mine)))
        with pytest.raises(WrongKey):
            at.opened(got, mine)
        at.hostile.answers = lambda seen: seen
        assert at.opened(await at.ask(GetBlob(at.keys.blob(mine))), mine) == b"first" * 1000


@pytest.mark.parametrize("cut", [-1, 1], ids=["shorter", "longer"])
async def test_a_blob_of_another_length_is_no_content(cut: int) -> None:
    async with deceived() as at:
        name = at.names[0]
        whole = await at.ask(GetBlob(at.keys.blob(name)))
        changed = whole[:-1] if cut < 0 else whole + b"x"
        at.hostile.answers = lambda seen: seen.saying(changed) if _is_read(seen) else seen
        with pytest.raises(Malformed):
            at.opened(await at.ask(GetBlob(at.keys.blob(name))), name)


async def test_a_blob_that_is_said_to_be_there_and_withheld_reads_as_missing() -> None:
    async with deceived() as at:
        key = at.keys.blob(at.names[0])
        assert await at.ask(Has((key,))) == [True]
        at.hostile.answers = lambda seen: seen.absent() if _is_read(seen) else seen
        assert await at.ask(GetBlob(key)) is None


async def test_a_relay_that_says_a_blob_is_missing_costs_an_upload_and_no_content() -> None:
    async with deceived() as at:
        key = at.keys.blob(at.names[0])
        at.hostile.answers = lambda seen: seen.absent() if _is_read(seen) else seen
        assert await at.ask(Has((key,))) == [False]
        assert await at.ask(PutBlob(key, b"sealed anew")) is False
        at.hostile.answers = lambda seen: seen
        assert at.opened(await at.ask(GetBlob(key)), at.names[0]) == b"first" * 1000


@pytest.mark.parametrize(
    ("status", "body"), [(200, bytes(10_000)), (206, b"x"), (206, bytes(10_000)), (304, b"")]
)
async def test_whether_a_blob_is_there_is_taken_from_no_impossible_answer(status: int, body: bytes) -> None:
    """Of one that is not there: an answer without its range, or with more than one byte, is none."""
    async with deceived() as at:
        at.hostile.answers = lambda seen: (
            replace(seen, status=status, answer=body) if _is_read(seen) else seen
        )
        with pytest.raises(StoreFailure):
            await at.ask(Has((at.keys.blob(bytes(32)),)))


async def test_a_condemnation_that_the_relay_did_not_take_down_is_none() -> None:
    async with deceived() as at:
        key = at.keys.blob(at.names[0])
        for status, answer in ((200, b"{}"), (202, b"gone!"), (204, b""), (500, b"")):
            said = partial(_saying, status, answer)
            at.hostile.answers = said
            with pytest.raises(StoreFailure):
                await at.ask(Condemn(keys=(key,)))


def _saying(status: int, answer: bytes, seen: Seen) -> Seen:
    return replace(seen, status=status, answer=answer, type="application/json")


async def test_an_endless_blob_is_read_up_to_one_byte_over_the_limit() -> None:
    store = MemoryStore()
    key = StoreKeys(bytes(16)).blob(bytes(32))
    await store.put_new(key, bytes(BLOB_BYTES_MAX * 2))
    found = await Runner(store, None).run(_asking(GetBlob(key)))
    assert len(found) == BLOB_BYTES_MAX + 1


class Breaking(MemoryStore):
    """Breaks off each answer after so many bytes."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after
        self.starts: list[int] = []

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        self.starts.append(start)
        found = await super().get(key, start=start, length=length)
        whole = await found.read()

        async def pieces() -> AsyncIterator[bytes]:
            yield whole[: self.after]
            if len(whole) > self.after:
                raise StoreUnavailable("the answer broke off")

        return Object(pieces(), size=found.size, start=start, length=found.length)


async def test_a_blob_that_breaks_off_is_read_on_from_there_and_not_for_ever() -> None:
    content = secrets.token_bytes(1000)
    store = Breaking(300)
    runner = Runner(store, None)
    key = StoreKeys(bytes(16)).blob(bytes(32))
    assert await runner.run(_asking(PutBlob(key, content)))
    assert await runner.run(_asking(GetBlob(key))) == content
    assert store.starts == [0, 300, 600, 900]
    assert runner.traffic.bytes_down == 1000
    for after, reads in ((200, 4), (0, 1)):
        store.after, store.starts = after, []
        with pytest.raises(StoreFailure, match="broke off"):
            await runner.run(_asking(GetBlob(key)))
        assert len(store.starts) == reads
