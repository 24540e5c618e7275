"""The sweeper itself: deletes what is named and nothing else, over random stores, failing stores and killed processes."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_relay.errors import StoreUnavailable
from crystal_relay.invites import MailboxSlot
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server.condemned import condemned_prefix
from crystal_relay.server.dropped_vaults import dropped_key
from crystal_relay.server.expiry import Expiry, ExpiryKind, parse_expiry
from crystal_relay.server.sweeper import (
    CONDEMNED_SETTLE_SECONDS,
    FAILURES_MAX,
    SLICE_PAGES,
    Sweeper,
)
from crystal_relay.store import Page, Store
from crystal_relay.wire import Condemnation

NOW = 1_800_000_000
VAULTS = ["0" * 32, "0" * 31 + "1", "f" * 32]
MAILBOX = "ab" * 16
STREAM = f"conversations/{'1' * 32}.{'2' * 16}"


def sweeper(store: Store, *, now: float = NOW) -> Sweeper:
    return Sweeper(store, clock=lambda: now)


async def put_all(store: Store, objects: Iterable[tuple[str, bytes]]) -> None:
    for key, data in objects:
        await store.put_new(key, data)


async def keys_of(store: Store, prefix: str = "") -> set[str]:
    found: set[str] = set()
    after, more = "", True
    while more:
        page = await store.list(prefix, after=after)
        found |= {entry.key for entry in page.entries}
        more = page.more
        after = page.entries[-1].key if page.entries else after
    return found


def condemned(vault: str, name: str, condemnation: Condemnation, *, when: int = NOW) -> dict[str, bytes]:
    return {
        Expiry(when, ExpiryKind.CONDEMNED, vault, name).key: b"",
        condemned_prefix(vault) + name: msgspec.json.encode(condemnation),
    }


def dropped(vault: str, *, until: int = NOW) -> dict[str, bytes]:
    return {
        Expiry(until, ExpiryKind.DROPPED, vault).key: b"",
        dropped_key(vault): msgspec.json.encode({"until": until}),
    }


def test_records_are_read_as_they_are_written() -> None:
    for expiry in (
        Expiry(NOW, ExpiryKind.INVITE, VAULTS[0], MAILBOX),
        Expiry(NOW, ExpiryKind.MAILBOX, VAULTS[0], MAILBOX),
        Expiry(1, ExpiryKind.CONDEMNED, VAULTS[1], "0" * 32),
        Expiry(10**12 - 1, ExpiryKind.DROPPED, VAULTS[2]),
    ):
        assert parse_expiry(expiry.key) == expiry
    for other in ("r/expiry/x", f"r/expiry/{NOW:012d}/later.{VAULTS[0]}", f"r/expiry/{NOW}/dropped.x"):
        assert parse_expiry(other) is None


# --- over random stores -----------------------------------------------------------------------------------------------

vaults = st.sampled_from(VAULTS)
slots = st.sampled_from(["0000", "0001", "0002", "0003"])
object_keys = st.one_of(
    slots.map(lambda slot: f"{STREAM}/{slot}"),
    slots.map(lambda slot: f"mirror/1/{slot}"),
    slots.map(lambda slot: f"devlog/{slot}"),
    st.sampled_from(MailboxSlot).map(lambda slot: f"invite/{MAILBOX}/{slot}"),
)
deletable = object_keys.filter(lambda key: not key.startswith("devlog/"))
times = st.integers(NOW - 3, NOW + 3)
condemnations = st.one_of(
    st.lists(deletable, min_size=1, max_size=4).map(lambda keys: Condemnation(keys=keys)),
    slots.map(lambda slot: Condemnation(prefix=f"{STREAM}/", through=f"{STREAM}/{slot}")),
    slots.map(lambda slot: Condemnation(prefix="mirror/1/", through=f"mirror/1/{slot}")),
)
others = st.sampled_from(
    [
        "r/enrollment/" + "0" * 64,
        "r/secret/peers",
        "w/space/mirror/1",
        f"r/expiry/{NOW - 9:012d}/later.{VAULTS[0]}.x",
        f"r/expiry/{NOW - 9:012d}/dropped.{VAULTS[0][:-1]}",
        *(f"r/vault/{vault}/record" for vault in VAULTS),
        *(f"r/vault/{vault}/token/{'1' * 32}/{'2' * 64}" for vault in VAULTS),
    ]
)


@given(
    objects=st.lists(st.tuples(vaults, object_keys), max_size=30),
    more=st.lists(others, max_size=6),
    invites=st.lists(
        st.tuples(times, vaults, st.sampled_from([ExpiryKind.INVITE, ExpiryKind.MAILBOX])), max_size=4
    ),
    asked=st.lists(st.tuples(times, vaults, condemnations), max_size=4),
    drops=st.lists(st.tuples(times, vaults), max_size=2, unique_by=lambda each: each[1]),
    restored=st.lists(st.tuples(times, vaults), max_size=2),
)
@settings(max_examples=300, deadline=None)
def test_what_no_record_names_is_never_deleted(
    objects: list[tuple[str, str]],
    more: list[str],
    invites: list[tuple[int, str, ExpiryKind]],
    asked: list[tuple[int, str, Condemnation]],
    drops: list[tuple[int, str]],
    restored: list[tuple[int, str]],
) -> None:
    content = {f"v/{vault}/{key}": b"x" for vault, key in objects} | dict.fromkeys(more, b"x")
    named: set[str] = set()
    for when, vault, kind in invites:
        record = Expiry(when, kind, vault, MAILBOX).key
        content[record] = b""
        if when <= NOW:
            named |= {record, *(f"v/{vault}/invite/{MAILBOX}/{slot}" for slot in MailboxSlot)}
    for number, (when, vault, condemnation) in enumerate(asked):
        records = condemned(vault, f"{number:032x}", condemnation, when=when)
        content |= records
        if when <= NOW:
            named |= set(records)
            named |= {f"v/{vault}/{key}" for key in condemnation.keys or ()}
            prefix, through = condemnation.prefix, condemnation.through
            if prefix is not None and through is not None:
                mine = f"v/{vault}/"
                named |= {key for key in content if key.startswith(mine + prefix) and key <= mine + through}
    for when, vault in restored:
        content[Expiry(when, ExpiryKind.DROPPED, vault).key] = b""
    for until, vault in drops:
        content |= dropped(vault, until=until)
    due = {vault for until, vault in drops if until <= NOW}
    for key in content:
        parts = key.split("/")
        if parts[0] == "v" and parts[1] in due:
            named.add(key)
        if parts[:2] in (["r", "vault"], ["r", "condemned"]) and parts[2] in due:
            named.add(key)
        expiry = parse_expiry(key)
        # A record of a drop that was restored, or is due, is removed in its time.
        if expiry is not None and expiry.kind is ExpiryKind.DROPPED and expiry.when <= NOW:
            named.add(key)
    # A condemnation that went with its vault leaves its record in the index for a while.
    left = {
        key
        for key in named
        if (expiry := parse_expiry(key)) is not None
        and expiry.kind is ExpiryKind.CONDEMNED
        and expiry.vault in due
    }

    async def run() -> None:
        store = MemoryStore()
        await put_all(store, content.items())
        await sweeper(store).run()
        kept = await keys_of(store)
        assert set(content) - named <= kept, "something was deleted that no record names"
        assert kept - left == set(content) - named, "something that a record names is still there"
        await sweeper(store).run()
        assert await keys_of(store) == kept

    asyncio.run(run())


async def test_a_condemnation_that_is_still_being_written_is_waited_for() -> None:
    store = MemoryStore()
    records = condemned(VAULTS[0], "0" * 32, Condemnation(keys=["mirror/1/1"]))
    record, condemnation = records
    await put_all(store, [(record, b""), (f"v/{VAULTS[0]}/mirror/1/1", b"x")])
    await sweeper(store).run()
    assert record in await keys_of(store)
    await store.put_new(condemnation, records[condemnation])
    await sweeper(store).run()
    assert await keys_of(store) == set()
    await store.put_new(record, b"")
    await sweeper(store, now=NOW + CONDEMNED_SETTLE_SECONDS + 1).run()
    assert await keys_of(store) == set()


async def test_an_invite_does_not_wait_for_a_large_vault() -> None:
    class Ordered(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.deleted: list[str] = []

        async def delete(self, key: str) -> None:
            self.deleted.append(key)
            await super().delete(key)

    store = Ordered()
    vault, other = VAULTS[0], VAULTS[1]
    size = SLICE_PAGES * 1000 + 500
    await put_all(store, [(f"v/{vault}/mirror/1/{number:06d}", b"") for number in range(size)])
    await put_all(store, dropped(vault, until=NOW - 5).items())
    invite = f"v/{other}/invite/{MAILBOX}/offer"
    await put_all(store, {Expiry(NOW, ExpiryKind.INVITE, other, MAILBOX).key: b"", invite: b""}.items())
    swept = await sweeper(store).run()
    assert store.deleted.index(invite) == 1  # behind its short invite
    assert await keys_of(store) == set()
    assert swept.deleted == {"invite": 1, "dropped": size}


async def test_nothing_due_costs_one_listing() -> None:
    class Counting(MemoryStore):
        lists = 0

        async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
            self.lists += 1
            return await super().list(prefix, after=after, limit=limit)

    store = Counting()
    await put_all(store, [(Expiry(NOW + 9, ExpiryKind.DROPPED, vault).key, b"") for vault in VAULTS])
    await sweeper(store).run()
    assert store.lists == 1


# --- stores that fail, processes that die -----------------------------------------------------------------------------


class FailingStore(MemoryStore):
    """Fails calls at random, before or after they take effect."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.share = 0.0

    def _fails(self) -> bool:
        return self.random.random() < self.share

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        if self._fails():
            raise StoreUnavailable("no answer")
        return await super().list(prefix, after=after, limit=limit)

    async def delete(self, key: str) -> None:
        if self._fails():
            raise StoreUnavailable("no answer")
        await super().delete(key)
        if self._fails():
            raise StoreUnavailable("the answer was lost")


def much_to_sweep() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What is to go, and what is to stay."""
    gone, core, kept = VAULTS
    stays = {f"v/{kept}/mirror/1/{number}": b"x" for number in range(50)}
    stays |= {f"r/vault/{core}/record": b"x", f"v/{core}/devlog/0": b"x", f"v/{core}/{STREAM}/9999": b"x"}
    goes = {f"v/{gone}/mirror/1/{number:04d}": b"x" for number in range(400)}
    goes |= {f"v/{core}/{STREAM}/{number:04d}": b"x" for number in range(400)}
    goes |= {f"r/vault/{gone}/record": b"x", f"r/vault/{gone}/token/{'1' * 32}/{'2' * 64}": b"x"}
    goes |= dropped(gone)
    goes |= condemned(core, "0" * 32, Condemnation(prefix=f"{STREAM}/", through=f"{STREAM}/0500"))
    return goes, stays


@pytest.mark.parametrize("seed", range(6))
async def test_a_store_that_fails_is_logged_and_tried_again(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    goes, stays = much_to_sweep()
    store = FailingStore(seed)
    await put_all(store, (goes | stays).items())
    store.share = 0.02
    now = float(NOW)
    sweeping = Sweeper(store, clock=lambda: now)
    with caplog.at_level(logging.WARNING, logger="crystal_relay.server"):
        for _ in range(200):
            now += 10
            swept = await sweeping.run()
            assert swept.failures <= FAILURES_MAX + 1
            store.share = 0
            left = await keys_of(store)
            store.share = 0.02
            assert stays.keys() <= left
            if dropped_key(VAULTS[0]) not in left:
                assert not any(VAULTS[0] in key for key in left if key.startswith(("v/", "r/vault/")))
            if left == stays.keys():
                break
        else:
            pytest.fail("it never ends")
    assert sweeping.failures
    assert "will be retried" in caplog.text
    assert all(vault not in caplog.text for vault in VAULTS)


async def test_processes_that_sweep_at_once_do_no_more_than_one() -> None:
    goes, stays = much_to_sweep()
    store = FailingStore(3)
    await put_all(store, (goes | stays).items())
    swept = await asyncio.gather(*(sweeper(store).run() for _ in range(4)))
    assert not any(each.failures for each in swept)
    later = sweeper(store, now=NOW + CONDEMNED_SETTLE_SECONDS + 1)
    await later.run()
    assert await keys_of(store) == stays.keys()


async def test_a_damaged_record_stops_nothing_else_and_deletes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    goes, stays = much_to_sweep()
    damaged = condemned(VAULTS[2], "1" * 32, Condemnation(keys=["mirror/1/0"]), when=NOW - 9)
    damaged[condemned_prefix(VAULTS[2]) + "1" * 32] = b'{"keys": ["devlog/0"]}'
    await put_all(store, (goes | stays | damaged | {f"v/{VAULTS[2]}/devlog/0": b"x"}).items())
    swept = await sweeper(store).run()
    assert swept.failures == 1
    assert await keys_of(store) == stays.keys() | damaged.keys() | {f"v/{VAULTS[2]}/devlog/0"}
    assert "damaged" in caplog.text


SWEEP = """
import asyncio, pathlib, sys
from crystal_relay.local import LocalStore
from crystal_relay.server.sweeper import Sweeper

async def main():
    store = LocalStore(pathlib.Path(sys.argv[1]))
    delete = store.delete

    async def told(key):
        await delete(key)
        print(key, flush=True)

    store.delete = told
    await Sweeper(store, clock=lambda: float(sys.argv[2])).run()
    await store.aclose()

asyncio.run(main())
"""


async def write_and_list(directory: Path, objects: dict[str, bytes]) -> set[str]:
    store = LocalStore(directory)
    await asyncio.gather(*(store.put_new(key, data) for key, data in objects.items()))
    found = await keys_of(store)
    await store.aclose()
    return found


def test_a_sweep_that_is_killed_is_taken_up_by_the_next(tmp_path: Path) -> None:
    goes, stays = much_to_sweep()
    directory = tmp_path / "relay"
    asyncio.run(write_and_list(directory, goes | stays))
    now = str(NOW + CONDEMNED_SETTLE_SECONDS + 1)
    random, deaths = Random(7), 0
    while True:
        process = subprocess.Popen(
            [sys.executable, "-c", SWEEP, str(directory), now], stdout=subprocess.PIPE, env=os.environ
        )
        assert process.stdout is not None
        for _ in range(random.randrange(1, 400)):
            if not process.stdout.readline():
                break
        else:
            process.send_signal(signal.SIGKILL)
        process.stdout.close()
        killed = process.wait(timeout=30) == -signal.SIGKILL
        deaths += killed
        left = asyncio.run(write_and_list(directory, {}))
        assert stays.keys() <= left
        if any(key.startswith(f"v/{VAULTS[0]}/") for key in left):
            assert dropped_key(VAULTS[0]) in left, "half a vault is open again"
        if not killed:
            break
    assert left == stays.keys()
    assert deaths >= 2
