"""A success reply means on disk, whole: real relay processes, killed in the middle of writing."""

import asyncio
import hashlib
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crystal_relay.errors import RelayError
from tests.support.relay_process import RelayProcess, running_relay
from tests.support.relay_server import Member, enrolled

pytestmark = pytest.mark.disk

WRITERS = 12
KILLS = 6
CONTENDERS = 3
SEED = int(os.environ.get("CRYSTAL_TEST_SEED", "7"))


def body_of(key: str) -> bytes:
    """Bytes that can be made again from the key: of any size, on both sides of where files begin."""
    seeded = random.Random(key)
    size = seeded.choice((0, 1, 300, 4_096, 60_000, 262_144, 262_145, 300_000, 1_000_000))
    block = hashlib.sha256(key.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


async def write_until_killed(url: str, member: Member, life: int, acknowledged: set[str]) -> None:
    """Many writers at once, each with its own keys, until the relay is gone."""
    store = member.store(url)

    async def writer(number: int) -> None:
        for step in range(100_000):
            key = f"{member.prefix}blob/{life}-{number}-{step}"
            try:
                await store.put_new(key, body_of(key))
            except RelayError:
                return
            acknowledged.add(key)

    await asyncio.gather(*(writer(number) for number in range(WRITERS)))
    await store.aclose()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  (a count has no event)
            await asyncio.sleep(0.01)


async def check_everything(url: str, member: Member, acknowledged: set[str]) -> set[str]:
    """Every acknowledged object is there; every object that is there is whole."""
    store = member.store(url)
    listed: dict[str, int] = {}
    after = ""
    while True:
        page = await store.list(f"{member.prefix}blob/", after=after)
        listed |= {entry.key: entry.size for entry in page.entries}
        if not page.more:
            break
        after = page.entries[-1].key
    assert acknowledged <= listed.keys(), f"lost: {sorted(acknowledged - listed.keys())[:5]}"
    for key, size in listed.items():
        expected = body_of(key)
        assert size == len(expected)
        assert await (await store.get(key)).read() == expected, f"damaged: {key}"
    await store.aclose()
    return set(listed)


async def test_what_was_acknowledged_survives_kills_at_any_moment(tmp_path: Path) -> None:
    directory = tmp_path / "relay"
    relay = RelayProcess(directory)
    acknowledged: set[str] = set()
    moments = random.Random(SEED)
    await asyncio.to_thread(relay.start)
    try:
        member = await enrolled(relay.url, enroll_token=relay.enroll_token)
        for life in range(KILLS):
            writing = asyncio.create_task(write_until_killed(relay.url, member, life, acknowledged))
            enough = len(acknowledged) + WRITERS + 1
            await until(lambda enough=enough: len(acknowledged) >= enough)  # type: ignore[misc]
            await asyncio.sleep(moments.uniform(0.0, 0.5))
            relay.kill()
            await writing
            await asyncio.to_thread(relay.start)
        found = await check_everything(relay.url, member, acknowledged)
        assert len(acknowledged) > KILLS * WRITERS
        files = [path for path in (directory / "files").rglob("*") if path.is_file()]
        assert {path.suffix for path in files} <= {".obj"}
        assert len(files) == sum(len(body_of(key)) > 262_144 for key in found)
    finally:
        relay.kill()


@dataclass
class Contest:
    """Keys for which several writers brought different bytes at once, some of which were deleted again."""

    won: dict[str, int] = field(default_factory=dict[str, int])
    """Who was told of success."""
    in_doubt: set[str] = field(default_factory=set[str])
    """Nobody was told anything, or a deletion has not been confirmed."""
    deleted: set[str] = field(default_factory=set[str])


async def contend_until_killed(url: str, member: Member, life: int, contest: Contest) -> None:
    """Groups with conflicts in them: small and large bodies for one key, next to creations of others and deletions."""
    store = member.store(url)

    async def contend(number: int) -> None:
        for step in range(100_000):
            key = f"{member.prefix}blob/{life}-{number}-{step}"
            contest.in_doubt.add(key)
            results = await asyncio.gather(
                *(store.put_new(key, body_of(f"{key}#{writer}")) for writer in range(CONTENDERS)),
                return_exceptions=True,
            )
            winners = [writer for writer, result in enumerate(results) if result is None]
            assert len(winners) <= 1, "two writers were told that they created it"
            if not winners:
                return
            contest.won[key] = winners[0]
            if step % 3 == 0:
                try:
                    await store.delete(key)
                except RelayError:
                    return
                contest.deleted.add(key)
            contest.in_doubt.remove(key)

    await asyncio.gather(*(contend(number) for number in range(WRITERS // 2)))
    await store.aclose()


async def check_contest(url: str, member: Member, contest: Contest) -> int:
    """Nothing is lost, mixed or back again. Returns how many objects are large."""
    store = member.store(url)
    listed: dict[str, int] = {}
    page = None
    while page is None or page.more:
        after = page.entries[-1].key if page is not None else ""
        page = await store.list(f"{member.prefix}blob/", after=after)
        listed |= {entry.key: entry.size for entry in page.entries}
    assert not contest.deleted & listed.keys(), "deleted, and there again"
    lost = contest.won.keys() - contest.deleted - contest.in_doubt - listed.keys()
    assert not lost, f"lost: {sorted(lost)[:5]}"
    for key, size in listed.items():
        who = contest.won.get(key)
        body = await (await store.get(key)).read()
        assert len(body) == size
        brought = [body_of(f"{key}#{writer}") for writer in range(CONTENDERS)]
        assert body in (brought if who is None else [brought[who]]), f"damaged, or another's: {key}"
    await store.aclose()
    return sum(size > 262_144 for size in listed.values())


async def test_of_writers_of_one_key_the_winner_who_was_told_stays_the_winner_over_kills(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "relay"
    relay = RelayProcess(directory)
    contest = Contest()
    moments = random.Random(SEED)
    await asyncio.to_thread(relay.start)
    try:
        member = await enrolled(relay.url, enroll_token=relay.enroll_token)
        large = 0
        for life in range(KILLS):
            writing = asyncio.create_task(contend_until_killed(relay.url, member, life, contest))
            await asyncio.sleep(moments.uniform(0.1, 0.6))
            relay.kill()
            await writing
            await asyncio.to_thread(relay.start)
            large = await check_contest(relay.url, member, contest)
        assert len(contest.won) > KILLS
        assert contest.deleted
        files = [path for path in (directory / "files").rglob("*") if path.is_file()]
        assert {path.suffix for path in files} <= {".obj"}
        assert len(files) == large
    finally:
        relay.kill()


async def test_an_orderly_stop_loses_nothing_and_exits_with_success(tmp_path: Path) -> None:
    relay = RelayProcess(tmp_path / "relay")
    await asyncio.to_thread(relay.start)
    try:
        member = await enrolled(relay.url, enroll_token=relay.enroll_token)
        acknowledged: set[str] = set()
        writing = asyncio.create_task(write_until_killed(relay.url, member, 0, acknowledged))
        await until(lambda: len(acknowledged) > WRITERS)
        assert await asyncio.to_thread(relay.stop) == 0
        await writing
        await asyncio.to_thread(relay.start)
        await check_everything(relay.url, member, acknowledged)
        assert acknowledged
    finally:
        relay.kill()
    assert "Traceback" not in relay.errors


async def test_a_cursor_killed_while_overwritten_is_one_of_those_written(tmp_path: Path) -> None:
    relay = RelayProcess(tmp_path / "relay")
    await asyncio.to_thread(relay.start)
    try:
        member = await enrolled(relay.url, enroll_token=relay.enroll_token)
        key = f"{member.prefix}cursor/{member.device}"
        last = -1

        async def overwrite() -> None:
            nonlocal last
            store = member.store(relay.url)
            try:
                for number in range(last + 1, 100_000):
                    await store.put(key, b"%06d" % number * (1 if number % 2 else 40_000))
                    last = number
            except RelayError:
                await store.aclose()

        for _ in range(4):
            writing = asyncio.create_task(overwrite())
            before = last
            await until(lambda: last > before + 4)  # noqa: B023  (waited for within the round)
            relay.kill()
            await writing
            await asyncio.to_thread(relay.start)
            store = member.store(relay.url)
            body = await (await store.get(key)).read()
            await store.aclose()
            number = int(body[:6])
            assert number in (last, last + 1)
            assert body == b"%06d" % number * (1 if number % 2 else 40_000)
            last = number
        assert last > 16
    finally:
        relay.kill()


def test_two_relays_do_not_share_a_directory(tmp_path: Path) -> None:
    with running_relay(tmp_path / "relay") as relay:
        second = RelayProcess(tmp_path / "relay")
        with pytest.raises(AssertionError, match="another process uses this store's directory"):
            second.start()
        assert relay.pid
