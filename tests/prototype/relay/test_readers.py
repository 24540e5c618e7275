"""Every reader gets every drop, in order, once; a confirm is one reader's own. The prototype lost and mixed them."""

import asyncio
import secrets
from functools import partial

import pytest

from crystal_prototype.relay.drops import Drops
from crystal_prototype.relay.names import Role, V1Channel
from crystal_prototype.relay.tokens import Tokens
from crystal_relay.memory import MemoryStore
from crystal_relay.store import Body
from tests.prototype.device import V1Device, dropped, let_in
from tests.support.relay_server import ServedRelay


async def blobs_in(relay: ServedRelay, prefix: str = "w/default/") -> list[str]:
    """Keys of blobs and marks; what is remembered of earlier drops aside."""
    page = await relay.store.list(prefix)
    return [entry.key for entry in page.entries if "/seen/" not in entry.key]


async def test_each_of_three_readers_gets_every_mirror_delta_whatever_the_others_confirm(
    relay: ServedRelay, core: V1Device, nodes: list[V1Device]
) -> None:
    deltas = [secrets.token_bytes(300) for _ in range(12)]
    for delta in deltas:
        await core.drop("mirror", delta)
    assert await nodes[0].poll("mirror") == deltas
    assert await nodes[0].poll("mirror") == []
    late = secrets.token_bytes(300)
    await core.drop("mirror", late)
    assert await nodes[1].poll("mirror") == [*deltas, late]
    assert await nodes[0].poll("mirror") == [late]
    assert await nodes[2].poll("mirror") == [*deltas, late]
    assert await blobs_in(relay) == [], "all have read all, and something is left"


async def test_readers_at_once_get_everything_and_leave_nothing(
    relay: ServedRelay, core: V1Device, nodes: list[V1Device]
) -> None:
    deltas = [secrets.token_bytes(200) for _ in range(30)]
    for delta in deltas:
        await core.drop("mirror", delta)
    assert await asyncio.gather(*(node.poll("mirror") for node in nodes)) == [deltas] * 3
    assert await blobs_in(relay) == []


async def test_order_is_kept_over_pages_beyond_a_thousand(core: V1Device, nodes: list[V1Device]) -> None:
    dropped = [(await core.drop("mirror", b"delta %05d" % number))["id"] for number in range(2_500)]
    listed = [blob["id"] for blob in await nodes[0].listed("mirror")]
    assert listed == dropped
    for name in dropped[::3]:
        await nodes[0].confirm("mirror", name)
    left = [name for number, name in enumerate(dropped) if number % 3]
    assert [blob["id"] for blob in await nodes[0].listed("mirror")] == left
    assert [blob["id"] for blob in await nodes[1].listed("mirror")] == dropped
    bodies = [await nodes[1].pick_up("mirror", name) for name in dropped[995:1005]]
    assert bodies == [b"delta %05d" % number for number in range(995, 1005)]


async def test_order_is_kept_when_the_clock_goes_back_and_the_relay_starts_anew(relay: ServedRelay) -> None:
    tokens = Tokens(relay.store)
    sender = (await let_in(relay.store, "cc-core", Role.CORE))[1]
    reader = (await let_in(relay.store, "cc-node", Role.NODE))[1]
    names: list[str] = []
    for seconds in (2_000_000_000.5, 2_000_000_000.5, 1_000_000_000.0):
        drops = Drops(relay.store, tokens, clock=partial(float, seconds))
        names += [await dropped(drops, sender, secrets.token_bytes(9)) for _ in range(3)]
    waiting = await Drops(relay.store, tokens).waiting(reader, V1Channel.MIRROR)
    assert [str(blob.id) for blob in waiting] == names


async def test_confirming_twice_and_confirming_what_is_not_there_harm_nobody(
    relay: ServedRelay, core: V1Device, nodes: list[V1Device]
) -> None:
    name = (await core.drop("mirror", b"sealed"))["id"]
    for _ in range(3):
        assert await nodes[0].confirm("mirror", name) == {"ok": True, "deleted": True}
    absent = name[:13] + "-999999-" + name[21:]
    assert await nodes[1].confirm("mirror", absent) == {"ok": True, "deleted": True}
    assert await nodes[1].confirm("files", name) == {"ok": True, "deleted": True}
    assert [key for key in await blobs_in(relay) if absent in key or "/files/" in key] == []
    assert await nodes[1].poll("mirror") == [b"sealed"]
    assert await nodes[2].poll("mirror") == [b"sealed"]
    assert await nodes[2].confirm("mirror", name) == {"ok": True, "deleted": True}
    assert await blobs_in(relay) == []


async def test_what_a_reader_has_confirmed_is_gone_for_it_alone(
    core: V1Device, nodes: list[V1Device]
) -> None:
    name = (await core.drop("files", b"sealed"))["id"]
    await nodes[0].confirm("files", name)
    assert (await nodes[0].http.get(f"/pickup/files/{name}")).status_code == 404
    assert await nodes[1].pick_up("files", name) == b"sealed"


async def test_a_device_neither_sees_nor_confirms_what_is_not_for_its_role(
    core: V1Device, nodes: list[V1Device]
) -> None:
    conversation = (await nodes[0].drop("conversations", b"said"))["id"]
    command = (await nodes[0].drop("commands", b"do"))["id"]
    for channel, name in (("conversations", conversation), ("commands", command)):
        for method, path in (
            ("GET", f"/pickup/{channel}"),
            ("GET", f"/pickup/{channel}/{name}"),
            ("DELETE", f"/confirm/{channel}/{name}"),
        ):
            reply = await nodes[1].http.request(method, path)
            assert (reply.status_code, reply.json()) == (
                403,
                {"error": f"{channel} is read by a core, and this token is of a node"},
            )
    assert await core.poll("conversations") == [b"said"]
    assert await core.poll("commands") == [b"do"]


async def test_a_blob_is_on_the_channel_it_was_dropped_on_and_on_no_other(
    core: V1Device, nodes: list[V1Device]
) -> None:
    name = (await nodes[0].drop("conversations", b"said"))["id"]
    assert await core.listed("commands") == []
    assert (await core.http.get(f"/pickup/commands/{name}")).status_code == 404
    assert await core.confirm("commands", name) == {"ok": True, "deleted": True}
    assert await core.poll("conversations") == [b"said"]


async def test_two_cores_both_get_every_conversation(relay: ServedRelay, nodes: list[V1Device]) -> None:
    said = [b"conversation %d" % number for number in range(5)]
    async with (
        await V1Device.added(relay.url, relay.store, "cc-one", "core") as one,
        await V1Device.added(relay.url, relay.store, "cc-two", "core") as two,
    ):
        for text in said:
            await nodes[0].drop("conversations", text)
        assert await one.poll("conversations") == said
        assert await two.poll("conversations") == said
        # What a Core drops for Cores is for itself, too: its hook drops, and its poller takes in.
        await one.drop("conversations", b"of one Core")
        assert await two.poll("conversations") == [b"of one Core"]
        assert await one.poll("conversations") == [b"of one Core"]
    assert await blobs_in(relay) == []


@pytest.mark.parametrize("confirmed_by_another", [False, True])
async def test_a_cores_own_conversations_come_back_to_its_poller(
    relay: ServedRelay, core: V1Device, nodes: list[V1Device], *, confirmed_by_another: bool
) -> None:
    own = [(await core.drop("conversations", b"said at the Core %d" % number))["id"] for number in range(3)]
    theirs = (await nodes[0].drop("conversations", b"said at a Node"))["id"]
    if confirmed_by_another:
        async with await V1Device.added(relay.url, relay.store, "cc-second", "core") as second:
            assert len(await second.poll("conversations")) == 4
    assert [blob["id"] for blob in await core.listed("conversations")] == [*own, theirs]
    assert {blob["agent_id"] for blob in (await core.listed("conversations"))[:3]} == {core.agent}
    assert await core.poll("conversations") == [
        *(b"said at the Core %d" % number for number in range(3)),
        b"said at a Node",
    ]
    assert await core.poll("conversations") == []
    again = await core.drop("conversations", b"said at the Core 0")
    assert (again["id"], await core.listed("conversations")) == (own[0], []), "a repeated drop comes in once"


async def test_a_drop_repeated_after_a_lost_reply_is_one_drop(
    relay: ServedRelay, core: V1Device, nodes: list[V1Device]
) -> None:
    first = await core.drop("mirror", b"delta")
    assert await core.drop("mirror", b"delta") == first
    again = await asyncio.gather(*(core.drop("mirror", b"other delta") for _ in range(8)))
    assert len({reply["id"] for reply in again}) == 1
    assert await nodes[0].poll("mirror") == [b"delta", b"other delta"]
    for node in nodes[1:]:
        await node.poll("mirror")
    assert await core.drop("mirror", b"delta") == first, "a late repetition"
    assert [await node.listed("mirror") for node in nodes] == [[], [], []]


async def test_the_same_bytes_of_two_devices_are_two_drops(core: V1Device, nodes: list[V1Device]) -> None:
    for node in nodes:
        await node.drop("conversations", b"hello")
    assert [blob["agent_id"] for blob in await core.listed("conversations")] == [node.agent for node in nodes]


async def test_the_sender_is_the_tokens_agent_whatever_the_body_says(
    core: V1Device, nodes: list[V1Device]
) -> None:
    name = (await nodes[1].drop("conversations", b'{"agent_id":"cc-core"}'))["id"]
    response = await core.http.get(f"/pickup/conversations/{name}", headers={"X-Agent-Id": "cc-core"})
    assert response.headers["x-agent-id"] == "cc-node-1"


async def test_a_revoked_reader_holds_nothing_back(
    relay: ServedRelay, core: V1Device, nodes: list[V1Device]
) -> None:
    tokens = Tokens(relay.store)
    await core.drop("mirror", b"one")
    await core.drop("mirror", b"two")
    for node in nodes[:2]:
        await node.poll("mirror")
    assert await blobs_in(relay)
    lost = (await tokens.identify(nodes[2].token)).id
    await Drops(relay.store, tokens).revoke(lost)
    assert await blobs_in(relay) == []
    assert (await nodes[2].http.get("/pickup/mirror")).status_code == 403
    await core.drop("mirror", b"three")
    assert [await node.poll("mirror") for node in nodes[:2]] == [[b"three"]] * 2
    assert await blobs_in(relay) == []


async def test_without_any_reader_a_drop_waits_for_one(relay: ServedRelay, core: V1Device) -> None:
    await core.drop("mirror", b"early")
    async with await V1Device.added(relay.url, relay.store, "cc-new", "node") as node:
        assert await node.poll("mirror") == [b"early"]


async def test_when_the_last_reader_is_revoked_what_was_not_read_waits_for_the_next(
    relay: ServedRelay, core: V1Device, nodes: list[V1Device]
) -> None:
    await core.drop("mirror", b"unread by most")
    await nodes[0].poll("mirror")
    tokens = Tokens(relay.store)
    holders = [(await tokens.identify(node.token)).id for node in nodes]
    for holder in holders:
        await tokens.revoke(holder)
    await Drops(relay.store, tokens).revoke(holders[0])
    async with await V1Device.added(relay.url, relay.store, "cc-new", "node") as node:
        assert await node.poll("mirror") == [b"unread by most"]


async def test_a_reader_added_while_others_confirm_loses_nothing_dropped_since(
    relay: ServedRelay, core: V1Device, nodes: list[V1Device]
) -> None:
    await core.drop("mirror", b"before")
    for node in nodes:
        await node.poll("mirror")
    async with await V1Device.added(relay.url, relay.store, "cc-new", "node") as node:
        await core.drop("mirror", b"after")
        for other in nodes:
            await other.poll("mirror")
        assert await node.poll("mirror") == [b"after"]


@pytest.mark.parametrize("channel", ["conversations", "mirror", "commands", "files"])
async def test_a_space_is_closed_to_the_tokens_of_another(
    relay: ServedRelay, core: V1Device, nodes: list[V1Device], channel: str
) -> None:
    sender, reader = (core, nodes[0]) if channel in ("mirror", "files") else (nodes[0], core)
    name = (await sender.drop(channel, b"ours"))["id"]
    role = "node" if channel in ("mirror", "files") else "core"
    async with await V1Device.added(relay.url, relay.store, "cc-eve", role, "elsewhere") as stranger:
        assert await stranger.listed(channel) == []
        assert (await stranger.http.get(f"/pickup/{channel}/{name}")).status_code == 404
        assert await stranger.confirm(channel, name) == {"ok": True, "deleted": True}
        assert (await blobs_in(relay, "w/elsewhere/")) == []
    assert await reader.pick_up(channel, name) == b"ours"


async def test_a_repeated_drop_is_known_the_next_day_and_forgotten_later(relay: ServedRelay) -> None:
    _, sender = await let_in(relay.store, "cc-core", Role.CORE)
    _, reader = await let_in(relay.store, "cc-node", Role.NODE)
    tokens = Tokens(relay.store)
    noon, day = 1_900_000_000.0, 86_400.0
    today = Drops(relay.store, tokens, clock=lambda: noon)
    first = await dropped(today, sender, b"delta")
    for number in range(200):
        await dropped(today, sender, b"%d" % number)
    next_day = Drops(relay.store, tokens, clock=lambda: noon + day)
    assert await dropped(next_day, sender, b"delta") == first
    later = Drops(relay.store, tokens, clock=lambda: noon + 2 * day)
    assert await dropped(later, sender, b"delta") != first
    waiting = await later.waiting(reader, V1Channel.MIRROR)
    assert [blob.size for blob in waiting].count(5) == 2
    for number in range(8):
        await dropped(later, sender, b"later %d" % number)
    remembered = (await relay.store.list("w/default/seen/")).entries
    assert len(remembered) == 9, "each drop clears away what is old"


async def test_a_very_long_list_is_cut_at_its_end_and_goes_on(
    core: V1Device, nodes: list[V1Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crystal_prototype.relay.drops.LISTED_MAX", 5)
    deltas = [b"delta %d" % number for number in range(12)]
    for delta in deltas:
        await core.drop("mirror", delta)
    rounds = [await nodes[0].poll("mirror") for _ in range(4)]
    assert rounds == [deltas[:5], deltas[5:10], deltas[10:], []]


class SlowFirstStore(MemoryStore):
    """The first blob takes until `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    async def put_new(self, key: str, body: bytes | Body) -> None:
        if key.startswith("w/default/mirror/") and not self.begun.is_set():
            self.begun.set()
            await self.go.wait()
        await super().put_new(key, body)


async def test_a_later_drop_is_not_seen_before_an_earlier_one_that_takes_long() -> None:
    store = SlowFirstStore()
    _, sender = await let_in(store, "cc-core", Role.CORE)
    _, reader = await let_in(store, "cc-node", Role.NODE)
    drops = Drops(store, Tokens(store))
    first = asyncio.create_task(dropped(drops, sender, b"first"))
    await store.begun.wait()
    second = asyncio.create_task(dropped(drops, sender, b"second"))
    for _ in range(50):
        await asyncio.sleep(0)
        assert await drops.waiting(reader, V1Channel.MIRROR) == []
    store.go.set()
    names = [await first, await second]
    assert [str(blob.id) for blob in await drops.waiting(reader, V1Channel.MIRROR)] == names
