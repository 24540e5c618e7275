"""A device that never reads fills no quota for the others, and drops expire where the operator says so."""

import time

import pytest

from crystal_prototype.relay import presence
from crystal_prototype.relay.drops import Drops, Held
from crystal_prototype.relay.extension import PROTOTYPE, ListTokens, expiring
from crystal_prototype.relay.names import DropId, Role, V1Channel
from crystal_prototype.relay.presence import ABSENT_MS, FIRST_MS, MARK_MS, Presence
from crystal_prototype.relay.tokens import Tokens, V1Holder, V1Token
from crystal_relay.errors import NotFound
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.store import Store
from tests.prototype.device import V1Device, dropped, let_in
from tests.support.relay_server import served

HOUR_MS = 3_600_000


class Clock:
    """Unix seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1_900_000_000.0

    def __call__(self) -> float:
        return self.now

    def pass_ms(self, milliseconds: int) -> None:
        self.now += milliseconds / 1000


async def admitted(store: Store, **roles: Role) -> dict[str, V1Holder]:
    return {name: (await let_in(store, f"cc-{name}", role))[1] for name, role in roles.items()}


async def listed_tokens(store: Store) -> dict[str, V1Token]:
    """What the operator sees, by agent."""
    answers = [each async for each in PROTOTYPE.operate(store, time.time).answer(ListTokens())]
    return {each.agent_id: each for each in answers if isinstance(each, V1Token)}


async def test_a_node_that_never_reads_does_not_fill_the_quota_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(presence, "FIRST_MS", -1)  # as if the relay ran for an hour
    store = MemoryStore()
    async with (
        served(store, RelaySettings(quota_bytes=40_000), extensions=[PROTOTYPE]) as relay,
        await V1Device.added(relay.url, store, "cc-core", "core") as core,
        await V1Device.added(relay.url, store, "cc-reads", "node") as node,
        await V1Device.added(relay.url, store, "cc-never", "node"),
    ):
        usage = relay.app.state.relay.extensions["v1"].usage
        for number in range(60):
            delta = b"%03d" % number * 1_000
            await core.drop("mirror", delta)
            await usage.counted()
            assert await node.poll("mirror") == [delta]
        await node.drop("conversations", b"said")
        assert await core.poll("conversations") == [b"said"]
        tokens = await listed_tokens(store)
        never, reads = tokens["cc-never"], tokens["cc-reads"]
        assert (never.read_at, never.waiting + never.missed) == (0, 60)
        assert never.missed > 0
        assert never.waiting_bytes == never.waiting * 3_000 > 0
        assert (reads.waiting, reads.missed) == (0, 0)
        assert reads.read_at > 0
    await store.aclose()


async def test_what_nobody_else_has_is_never_deleted_to_make_room() -> None:
    store, clock = MemoryStore(), Clock()
    tokens = Tokens(store)
    who = await admitted(store, core=Role.CORE, second=Role.CORE, node=Role.NODE)
    drops = Drops(store, tokens, clock=clock)
    only = [
        await dropped(drops, who["node"], b"only %d" % number, V1Channel.CONVERSATIONS) for number in range(3)
    ]
    clock.pass_ms(FIRST_MS + 1)
    assert await drops.make_room("default", 1) == 0, "no Core has read these"
    assert len(await drops.waiting(who["core"], V1Channel.CONVERSATIONS)) == 3
    await drops.confirm(who["core"], V1Channel.CONVERSATIONS, DropId.parse(only[0]))
    assert await drops.make_room("default", 1_000) == len(b"only 0"), (
        "the first is at one Core; the other never asked"
    )
    left = [str(each.id) for each in await drops.waiting(who["second"], V1Channel.CONVERSATIONS)]
    assert left == only[1:]
    assert (await drops.presence_of(who["second"])).missed == 1


async def test_a_reader_that_asked_today_loses_nothing_in_a_full_space() -> None:
    store, clock = MemoryStore(), Clock()
    who = await admitted(store, core=Role.CORE, node=Role.NODE)
    drops = Drops(store, Tokens(store), clock=clock)
    names = [await dropped(drops, who["core"], b"delta %d" % number) for number in range(3)]
    await drops.waiting(who["node"], V1Channel.MIRROR)
    clock.pass_ms(ABSENT_MS)
    assert await drops.make_room("default", 1_000) == 0
    clock.pass_ms(1)
    assert await drops.make_room("default", 8) == 14, "the oldest, until there is room"
    assert [str(each.id) for each in await drops.waiting(who["node"], V1Channel.MIRROR)] == names[2:]
    assert await drops.presence_of(who["node"]) == Presence(int(clock() * 1000), 2)


async def test_nobody_is_absent_in_the_first_hour_of_a_relay_that_was_off_for_a_day_or_kept_no_marks() -> (
    None
):
    store, clock = MemoryStore(), Clock()
    who = await admitted(store, core=Role.CORE, asked=Role.NODE, before=Role.NODE)
    drops = Drops(store, Tokens(store), clock=clock)
    names = [await dropped(drops, who["core"], b"delta %d" % number) for number in range(3)]
    await drops.waiting(who["asked"], V1Channel.MIRROR)
    clock.pass_ms(ABSENT_MS + HOUR_MS)
    again = Drops(store, Tokens(store), clock=clock)
    assert await again.make_room("default", 1_000) == 0
    assert [str(each.id) for each in await again.waiting(who["asked"], V1Channel.MIRROR)] == names
    clock.pass_ms(FIRST_MS)
    assert [str(each.id) for each in await again.waiting(who["before"], V1Channel.MIRROR)] == names
    clock.pass_ms(1)
    assert await again.make_room("default", 1_000) == 0, "both have asked since"
    clock.pass_ms(ABSENT_MS)
    assert await again.make_room("default", 1_000) == 21


async def test_reading_is_noted_once_an_hour() -> None:
    store, clock = MemoryStore(), Clock()
    who = await admitted(store, node=Role.NODE)
    drops = Drops(store, Tokens(store), clock=clock)
    began = int(clock() * 1000)
    for passed, noted in ((0, began), (MARK_MS - 1, began), (1, began + MARK_MS)):
        clock.pass_ms(passed)
        await drops.waiting(who["node"], V1Channel.MIRROR)
        assert (await drops.presence_of(who["node"])).at == noted


async def test_drops_expire_after_the_hours_that_the_operator_set() -> None:
    store, clock = MemoryStore(), Clock()
    who = await admitted(store, core=Role.CORE, one=Role.NODE, two=Role.NODE)
    drops = Drops(store, Tokens(store), clock=clock, expire_ms=24 * HOUR_MS)
    old = DropId.parse(await dropped(drops, who["core"], b"old"))
    await drops.confirm(who["one"], V1Channel.MIRROR, old)
    clock.pass_ms(24 * HOUR_MS)
    assert [each.id for each in await drops.waiting(who["two"], V1Channel.MIRROR)] == [old]
    clock.pass_ms(1)
    with pytest.raises(NotFound):
        await drops.pick_up(who["two"], V1Channel.MIRROR, old)
    new = await dropped(drops, who["core"], b"new")
    kept = [each.key for each in (await store.list("w/default/")).entries if "/seen/" not in each.key]
    assert kept == [f"w/default/mirror/{new}"], "the next drop has deleted it, with its marks"
    assert [str(each.id) for each in await drops.waiting(who["two"], V1Channel.MIRROR)] == [new]
    assert [(await drops.presence_of(who[name])).missed for name in ("one", "two")] == [0, 1]


async def test_bytes_that_expired_unread_are_stored_when_they_are_dropped_again() -> None:
    store, clock = MemoryStore(), Clock()
    who = await admitted(store, core=Role.CORE, one=Role.NODE, two=Role.NODE)
    drops = Drops(store, Tokens(store), clock=clock, expire_ms=HOUR_MS)
    first = [await dropped(drops, who["core"], b"delta %d" % number) for number in range(40)]
    for name in first[:2]:
        for reader in ("one", "two") if name == first[0] else ("one",):
            await drops.confirm(who[reader], V1Channel.MIRROR, DropId.parse(name))
    clock.pass_ms(HOUR_MS + 1)
    # A request deletes 32 at once: the last ones are still there, and shown to nobody.
    second = [await dropped(drops, who["core"], b"delta %d" % number) for number in (0, 1, 2, 39)]
    assert second[0] == first[0], "a repetition of what all have"
    assert set(second[1:]).isdisjoint(first)
    for reader in ("one", "two"):
        waiting = [str(each.id) for each in await drops.waiting(who[reader], V1Channel.MIRROR)]
        assert waiting == second[1:]
    assert await dropped(drops, who["core"], b"delta 39") == second[3], "and a repetition of that is one"


async def test_bytes_that_were_deleted_to_make_room_are_stored_when_they_are_dropped_again() -> None:
    store, clock = MemoryStore(), Clock()
    who = await admitted(store, core=Role.CORE, node=Role.NODE)
    drops = Drops(store, Tokens(store), clock=clock)
    first = await dropped(drops, who["core"], b"delta")
    clock.pass_ms(FIRST_MS + 1)
    assert await drops.make_room("default", 1) == 5
    second = await dropped(drops, who["core"], b"delta")
    assert second != first
    assert [str(each.id) for each in await drops.waiting(who["node"], V1Channel.MIRROR)] == [second]


async def test_nothing_expires_unless_the_operator_says_so() -> None:
    store, clock = MemoryStore(), Clock()
    who = await admitted(store, core=Role.CORE, node=Role.NODE)
    drops = Drops(store, Tokens(store), clock=clock)
    name = await dropped(drops, who["core"], b"old")
    clock.pass_ms(400 * 24 * HOUR_MS)
    assert [str(each.id) for each in await drops.waiting(who["node"], V1Channel.MIRROR)] == [name]
    assert (await drops.held("default"))[who["node"].id] == Held(1, 3)


async def test_a_relay_passes_the_hours_on() -> None:
    store = MemoryStore()
    _, sender = await let_in(store, "cc-core", Role.CORE)
    await dropped(Drops(store, Tokens(store), clock=lambda: time.time() - 25 * 3600), sender, b"old")
    for extension, count in ((expiring(48), 1), (expiring(24), 0)):
        async with (
            served(store, RelaySettings(), extensions=[extension]) as relay,
            await V1Device.added(relay.url, store, "cc-node", "node") as node,
        ):
            assert len(await node.listed("mirror")) == count
    await store.aclose()
