"""Small objects over HTTP: drops, pickups and lists, each beside a bare handler and the store by itself."""

import asyncio
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count as numbers
from pathlib import Path
from statistics import median

from bench.harness import Row, percentile, ratio_at_least, value_at_most
from bench.nginx_dav import has_nginx_dav, nginx_dav
from bench.relay_load import (
    CONCURRENCY,
    SMALL_BYTES,
    UNLIMITED,
    Load,
    bare_server,
    concurrently,
    get,
    headers,
    lean_server,
    load,
    on_uvloop,
    put,
    stream,
)
from crystal_relay.local import LocalStore
from tests.support.relay_process import RelayProcess, running_relay
from tests.support.relay_server import Member, enrolled

BODY = os.urandom(SMALL_BYTES)
LISTED = 100
FEW_VAULTS = 10
MANY_VAULTS = 10_000
MANY_AT_ONCE = 64


@dataclass
class Pairs:
    """Measured in turns: the relay, and what it is compared with."""

    ours: list[Load] = field(default_factory=list[Load])
    theirs: list[Load] = field(default_factory=list[Load])

    def row(self, name: str, baseline: str, target: float | None, note: str = "") -> Row:
        """The rates and their ratio. `target`: None judges nothing."""
        return Row(
            name=name,
            value=median(each.rate for each in self.ours),
            unit="/s",
            baseline=baseline,
            baseline_value=median(each.rate for each in self.theirs),
            target=None if target is None else ratio_at_least(target),
            note=note,
        )


def run(quick: bool) -> list[Row]:
    """Rows for the result table."""
    count, rounds = (2_000, 3) if quick else (8_000, 5)
    vaults = 1_000 if quick else MANY_VAULTS
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as directory, bare_server() as bare:
        with running_relay(Path(directory) / "relay", options=UNLIMITED, fresh=True) as relay:
            member = asyncio.run(enrolled(relay.url, enroll_token=relay.enroll_token))
            rows = on_uvloop(lambda: _drops(Path(directory), relay.url, bare, member, count, rounds))
            rows += on_uvloop(lambda: _reads(Path(directory), relay, bare, member, count, rounds))
            with ExitStack() as stack:
                lean = stack.enter_context(lean_server(Path(directory) / "lean.db"))
                dav = Path(directory) / "nginx"
                nginx = stack.enter_context(nginx_dav(dav)) if has_nginx_dav() else None
                rows += on_uvloop(lambda: _limits(relay.url, lean, bare, nginx, member, count, rounds))
        with running_relay(Path(directory) / "vaults", options=UNLIMITED, fresh=True) as relay:
            rows.append(on_uvloop(lambda: _vaults(relay, vaults, rounds)))
        return rows


async def _drops(directory: Path, url: str, bare: str, member: Member, count: int, rounds: int) -> list[Row]:
    over_http, at_store = Pairs(), Pairs()
    store = LocalStore(directory / "store")
    for number in range(rounds + 1):
        first = number * count
        request = partial(put, member, body=BODY)
        keys = [member.prefix + stream(member, at) for at in range(first, first + count)]
        mine = await _load(url, request, count, 201, first)
        over_http.ours.append(mine)
        over_http.theirs.append(await _load(bare, request, count, 201, first))
        at_store.ours.append(mine)
        at_store.theirs.append(await concurrently(keys, lambda key: store.put_new(key, BODY)))
    await store.aclose()
    for pairs in (over_http, at_store):
        del pairs.ours[0], pairs.theirs[0]  # the first round warmed up
    name = f"durable 4 KB drops, {CONCURRENCY} at once"
    return [
        over_http.row(name, "a bare Starlette handler", 0.5),
        at_store.row(f"{name} (again)", "the local store by itself", 0.7),
        Row(
            name="the same drops, p99",
            value=median(percentile(each.latencies, 99) for each in over_http.ours) * 1000,
            unit="ms",
            target=value_at_most(50),
        ),
    ]


async def _reads(
    directory: Path, relay: RelayProcess, bare: str, member: Member, count: int, rounds: int
) -> list[Row]:
    recent, old, lists = Pairs(), Pairs(), Pairs()
    store = LocalStore(directory / "read")
    some = min(count, 4_000)
    newest = (rounds + 1) * count - some  # the first round of the drops was for warming up
    bytes_of_list = 0
    keys = [member.prefix + stream(member, at) for at in range(some)]
    await concurrently(keys, lambda key: store.put_new(key, BODY))
    read_alone, listed_alone = Pairs(ours=recent.ours), Pairs(ours=lists.ours)
    for number in range(rounds):
        recent.ours.append(await _load(relay.url, partial(get, member), some, 200, newest))
        recent.theirs.append(await _load(bare, _bare(SMALL_BYTES), some, 200))
        bytes_of_list = bytes_of_list or len(await _one_list(relay.url, member))
        lists.ours.append(await _load(relay.url, partial(_list, member), some // 4, 200, number * some))
        lists.theirs.append(await _load(bare, _bare(bytes_of_list), some // 4, 200))
        read_alone.theirs.append(await concurrently(keys, lambda key: _read(store, key)))
        listed_alone.theirs.append(
            await concurrently(keys[: some // 4], lambda key: _page(store, member.prefix, key))
        )
    await store.aclose()
    for number in range(rounds):
        if number % 2 == 0:  # nothing is in a new process's memory; two parts are read of each
            relay.stop()
            relay.start()
            await _load(relay.url, partial(_list, member), 10, 200)
        part = (number % 2) * some
        old.ours.append(await _load(relay.url, partial(get, member), some, 200, part))
        old.theirs.append(await _load(bare, _bare(SMALL_BYTES), some, 200))
    bare_name, alone = "a bare Starlette handler", "the local store by itself"
    pickups, pages = (f"{what}, {CONCURRENCY} at once" for what in ("4 KB pickups", f"lists of {LISTED}"))
    return [
        recent.row(pickups, bare_name, 0.6, "dropped lately"),
        read_alone.row(pickups, alone, None, "dropped lately"),
        old.row(pickups, bare_name, 0.6, "after a restart"),
        lists.row(pages, f"{bare_name}, as many bytes", 0.6),
        listed_alone.row(pages, alone, None),
    ]


async def _limits(
    url: str, lean: str, bare: str, nginx: str | None, member: Member, count: int, rounds: int
) -> list[Row]:
    """The relay beside the least that such a server can do, and beside nginx, which suits people who need no more."""
    drops, pickups, put_there, got_there = Pairs(), Pairs(), Pairs(), Pairs()

    def small(_: int) -> bytes:
        return b"GET /small HTTP/1.1\r\nHost: bare\r\n\r\n"

    for number in range(-1, rounds):
        first = 10**8 + number * count
        drop, pick_up = partial(put, member, body=BODY), partial(get, member)
        turn: list[tuple[list[Load], str, Callable[[int], bytes], int]] = [
            (drops.ours, url, drop, 201),
            (drops.theirs, lean, drop, 201),
            (pickups.ours, url, pick_up, 200),
            (pickups.theirs, bare, small, 200),
        ]
        if nginx is not None:
            turn += [(put_there.theirs, nginx, drop, 201), (got_there.theirs, nginx, pick_up, 200)]
        for found, server, request, expected in turn:
            done = await load(
                server, request, count=count, connections=MANY_AT_ONCE, expected=expected, first=first
            )
            if number >= 0:  # the first round warmed up
                found.append(done)
    dropped, picked_up = (
        f"{what}, {MANY_AT_ONCE} at once" for what in ("durable 4 KB drops", "4 KB pickups")
    )
    rows = [
        drops.row(dropped, "a lean server with group commit", 0.65),
        pickups.row(picked_up, "bare uvicorn", 0.6, "dropped lately"),
    ]
    if nginx is not None:
        put_there.ours, got_there.ours = drops.ours, pickups.ours
        rows += [
            put_there.row(f"{dropped} (again)", "nginx's DAV, which flushes nothing", None),
            got_there.row(f"{picked_up} (again)", "nginx's DAV", None, "dropped lately"),
        ]
    return rows


async def _read(store: LocalStore, key: str) -> None:
    await (await store.get(key)).read()


async def _page(store: LocalStore, prefix: str, after: str) -> None:
    await store.list(prefix, after=after, limit=LISTED)


async def _vaults(relay: RelayProcess, many: int, rounds: int) -> Row:
    """Drops spread over many vaults, beside the same drops spread over ten."""
    members = [Member() for _ in range(many)]
    await concurrently([str(at) for at in range(many)], lambda at: _enrol(relay, members[int(at)]))
    pairs = Pairs()
    number = numbers()
    for _ in range(rounds):
        for some, loads in ((members, pairs.ours), (members[:FEW_VAULTS], pairs.theirs)):
            first = next(number) * many

            def request(at: int, some: list[Member] = some) -> bytes:
                return put(some[at % len(some)], at, BODY)

            loads.append(await _load(relay.url, request, many, 201, first))
    return pairs.row(f"drops to {many:,} vaults", f"to {FEW_VAULTS}", 0.9)


async def _enrol(relay: RelayProcess, member: Member) -> None:
    from crystal_relay.tokens import recovery_hash, token_hash

    client = member.store(relay.url)
    await client.create_vault(
        enroll_token=relay.enroll_token,
        recovery_hash=recovery_hash(member.recovery),
        device=member.device,
        token_hash=token_hash(member.token),
        proof=member.proof(client.host),
    )
    await client.aclose()


async def _load(url: str, request: Callable[[int], bytes], count: int, expected: int, first: int = 0) -> Load:
    return await load(url, request, count=count, connections=CONCURRENCY, expected=expected, first=first)


def _list(member: Member, at: int) -> bytes:
    after = stream(member, at).replace("/", "%2F")
    target = f"/v2/vaults/{member.vault}/list?prefix=conversations%2F&after={after}&limit={LISTED}"
    return b"GET %s HTTP/1.1\r\n%s\r\n" % (target.encode(), headers(member))


async def _one_list(url: str, member: Member) -> bytes:
    import httpx

    async with httpx.AsyncClient(base_url=url, headers=member.authorization) as client:
        target = _list(member, 0).split(b" ")[1].decode()
        return (await client.get(target)).content


def _bare(size: int) -> Callable[[int], bytes]:
    request = f"GET /bytes/{size} HTTP/1.1\r\nHost: bare\r\n\r\n".encode()
    return lambda _: request
