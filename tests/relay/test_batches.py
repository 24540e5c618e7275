"""Many small objects in one request: over real HTTP, and the frames by themselves."""

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from crystal_relay.address import http_client
from crystal_relay.batches import Found, Lacking, encode_reads, encode_writes, parse_reads, parse_writes
from crystal_relay.client.http import HttpStore
from crystal_relay.decorators import Pace, PacedStore, RetryingStore
from crystal_relay.errors import (
    BadReply,
    BadRequest,
    Forbidden,
    NoSuchRoute,
    QuotaExceeded,
    StoreDamaged,
    StoreUnavailable,
    TooManyRequests,
    Unauthorized,
)
from crystal_relay.limits import (
    BATCH_BYTES_MAX,
    BATCH_OBJECT_BYTES_MAX,
    BATCH_OBJECTS_MAX,
    KIB,
)
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.rates import OBJECTS_OF_REQUEST
from crystal_relay.server.replies import error_reply
from crystal_relay.store import Object
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, served


@pytest_asyncio.fixture
async def store(relay: ServedRelay, lead: Member) -> AsyncGenerator[HttpStore]:
    made = lead.store(relay.url)
    yield made
    await made.aclose()


def blobs(member: Member, count: int, size: int = 100) -> list[tuple[str, bytes]]:
    return [(f"{member.prefix}blob/{number:04d}", bytes([number % 256]) * size) for number in range(count)]


async def asked(
    relay: ServedRelay, member: Member, path: str, content: bytes, media: str = "application/json"
) -> httpx.Response:
    async with http_client(relay.url, connect=10, idle=10, connections_kept=1) as http:
        return await http.post(
            f"/v2/vaults/{member.vault}/{path}",
            content=content,
            headers=member.authorization | {"Content-Type": media},
        )


# --- what they do ---


async def test_what_is_written_many_at_a_time_is_read_back(store: HttpStore, lead: Member) -> None:
    objects = blobs(lead, BATCH_OBJECTS_MAX)
    assert await store.write_many(objects) == [True] * len(objects)
    keys = [key for key, _ in objects]
    assert await store.read_many(keys, 1000) == [body for _, body in objects]
    assert await (await store.get(keys[7])).read() == objects[7][1]


async def test_a_key_that_is_taken_keeps_its_object(store: HttpStore, lead: Member) -> None:
    [(key, body), other] = blobs(lead, 2)
    await store.put_new(key, b"what stands there")
    assert await store.write_many([(key, body), other]) == [False, True]
    assert await store.read_many([key, other[0]], 1000) == [b"what stands there", other[1]]


async def test_an_empty_object_is_an_object(store: HttpStore, lead: Member) -> None:
    key = f"{lead.prefix}blob/empty"
    assert await store.write_many([(key, b"")]) == [True]
    assert await store.read_many([key, f"{lead.prefix}blob/none"], 10) == [b"", Lacking.ABSENT]


async def test_objects_of_each_channel_are_read(store: HttpStore, lead: Member) -> None:
    keys = [f"{lead.prefix}mirror/1/1", f"{lead.prefix}devlog/1", f"{lead.prefix}cursor/{lead.device}"]
    for key in keys[:2]:
        await store.put_new(key, key.encode())
    await store.put(keys[2], keys[2].encode())
    assert await store.read_many(keys, 1000) == [key.encode() for key in keys]


async def test_a_larger_object_and_what_a_reply_does_not_hold_are_to_be_asked_for_alone(
    store: HttpStore, lead: Member
) -> None:
    large = f"{lead.prefix}blob/large"
    await store.put_new(large, bytes(2000))
    many = blobs(lead, 12, 400 * KIB)
    for each in many:
        await store.put_new(*each)
    found = await store.read_many([large, *(key for key, _ in many)], BATCH_OBJECT_BYTES_MAX)
    assert found[0] == bytes(2000)
    there = [each for each in found[1:] if isinstance(each, bytes)]
    assert len(there) == (BATCH_BYTES_MAX - 2000) // (400 * KIB)
    assert found[1:].count(Lacking.ALONE) == 12 - len(there)
    assert await store.read_many([large], 1999) == [Lacking.ALONE]


async def test_a_waiting_device_wakes(relay: ServedRelay, store: HttpStore, lead: Member) -> None:
    prefix = f"{lead.prefix}blob/"
    token = await store.wait(prefix, token=None, timeout=0)
    waiting = asyncio.create_task(store.wait(prefix, token=token, timeout=30))
    await asyncio.sleep(0.1)
    await store.write_many(blobs(lead, 3))
    assert await waiting != token


async def test_a_damaged_object_does_not_spoil_its_neighbours(tmp_path: Path) -> None:
    store = _Damaging(tmp_path / "relay")
    async with served(store) as relay:
        lead = await enrolled(relay.url)
        client = lead.store(relay.url)
        objects = blobs(lead, 3)
        await client.write_many(objects)
        store.damaged = objects[1][0]
        found = await client.read_many([key for key, _ in objects], 1000)
        assert found == [objects[0][1], Lacking.DAMAGED, objects[2][1]]
        await client.aclose()
    await store.aclose()


class _Damaging(LocalStore):
    """One object cannot be read any more."""

    damaged = ""

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        if key == self.damaged:
            raise StoreDamaged("shorter than it was")
        return await super().get(key, start=start, length=length)


# --- who may ---


async def test_another_vaults_token_reads_and_writes_nothing(relay: ServedRelay, lead: Member) -> None:
    other = await enrolled(relay.url)
    stranger = Member(vault=lead.vault, device=other.device, token=other.token)
    store = stranger.store(relay.url)
    with pytest.raises(Unauthorized):
        await store.read_many([f"{lead.prefix}blob/1"], 10)
    with pytest.raises(Unauthorized):
        await store.write_many(blobs(lead, 2))
    await store.aclose()


async def test_a_device_writes_blobs_only(relay: ServedRelay, store: HttpStore, lead: Member) -> None:
    with pytest.raises(BadRequest, match="only blobs"):
        await store.write_many([(f"{lead.prefix}mirror/1/1", b"x"), (f"{lead.prefix}blob/1", b"x")])
    assert await store.read_many([f"{lead.prefix}blob/1"], 10) == [Lacking.ABSENT]


async def test_what_is_in_a_mailbox_is_not_read(store: HttpStore, lead: Member) -> None:
    with pytest.raises(BadRequest, match="mailbox"):
        await store.read_many([f"{lead.prefix}invite/{'a' * 32}/offer"], 10)


async def test_keys_of_no_channel_and_of_other_places_are_refused(
    relay: ServedRelay, store: HttpStore, lead: Member
) -> None:
    for key in ("../../r/x", "blob/../x", "tokens/1", "blob/"):
        reply = await asked(relay, lead, "reads", json.dumps({"keys": [key], "bytes_max": 10}).encode())
        assert reply.status_code == 400, key
        body = struct.pack(">HI", len(key), 1) + key.encode() + b"x"
        assert (await asked(relay, lead, "writes", body, "application/octet-stream")).status_code == 400


# --- limits ---


async def test_requests_beyond_the_limits_are_refused(relay: ServedRelay, lead: Member) -> None:
    keys = [f"blob/{number}" for number in range(BATCH_OBJECTS_MAX + 1)]
    wrongs: tuple[object, ...] = (
        {"keys": keys, "bytes_max": 1},
        {"keys": [], "bytes_max": 1},
        {"keys": keys[:1], "bytes_max": 0},
        {"keys": keys[:1], "bytes_max": BATCH_OBJECT_BYTES_MAX + 1},
        {"keys": keys[:1]},
        {"keys": keys[:1], "bytes_max": 1, "more": 1},
        [],
    )
    for wrong in wrongs:
        assert (await asked(relay, lead, "reads", json.dumps(wrong).encode())).status_code == 400
    assert (await asked(relay, lead, "reads", bytes(200 * KIB))).status_code == 413
    assert (await asked(relay, lead, "writes", bytes(5 * BATCH_BYTES_MAX // 4))).status_code == 413
    assert (await asked(relay, lead, "reads?x=1", b"{}")).status_code == 400
    async with http_client(relay.url, connect=10, idle=10, connections_kept=1) as http:
        got = await http.get(f"/v2/vaults/{lead.vault}/reads", headers=lead.authorization)
    assert (got.status_code, got.headers["allow"]) == (405, "POST")


async def test_a_batch_that_does_not_fit_into_the_vault_is_refused_whole(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "relay")
    async with served(store, RelaySettings(enroll_token=ENROLL_TOKEN, quota_bytes=10_000)) as relay:
        lead = await enrolled(relay.url)
        client = lead.store(relay.url)
        assert await client.write_many(blobs(lead, 4, 1000)) == [True] * 4
        await relay.app.state.relay.usage.counted()
        with pytest.raises(QuotaExceeded):
            await client.write_many([(f"{key}x", body) for key, body in blobs(lead, 8, 1000)])
        page = await client.list(f"{lead.prefix}blob/")
        assert len(page.entries) == 4
        await client.aclose()
    await store.aclose()


async def test_a_batch_counts_as_several_requests_of_its_device() -> None:
    store = MemoryStore()
    async with served(store, RelaySettings(enroll_token=ENROLL_TOKEN, rate_per_token=3.0)) as relay:
        lead = await enrolled(relay.url)
        client = lead.store(relay.url)
        keys = [key for key, _ in blobs(lead, 10 * OBJECTS_OF_REQUEST)]
        for _ in range(2):  # 11 each, of the 30 that may be used at once
            await client.read_many(keys, 10)
        with pytest.raises(TooManyRequests):
            await client.read_many(keys, 10)
        await client.aclose()


# --- other relays ---


async def test_a_relay_without_such_requests_is_asked_once(relay: ServedRelay, lead: Member) -> None:
    asked_for: list[str] = []
    inside = relay.app.middleware_stack or relay.app.build_middleware_stack()

    async def older(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].endswith(("/reads", "/writes")):
            asked_for.append(scope["path"].rpartition("/")[2])
            await error_reply(NoSuchRoute("no such route"))(scope, receive, send)
        else:
            await inside(scope, receive, send)

    store = HttpStore(
        "http://127.0.0.1:1", vault=lead.vault, token=lead.token, transport=httpx.ASGITransport(older)
    )
    objects = blobs(lead, 3)
    assert await store.write_many(objects) == [Lacking.ALONE] * 3
    assert await store.read_many([key for key, _ in objects], 10) == [Lacking.ALONE] * 3
    assert asked_for == ["writes"]
    await store.put_new(*objects[0])
    await store.aclose()


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        encode_reads([b"one"]),
        encode_reads([b"one", b"two", b"three"]),
        encode_reads([b"one", b"longer than asked for"]),
        encode_reads([b"one", b"two"])[:-1],
        encode_reads([b"one", b"two"]) + b"x",
        struct.pack(">BI", 2, 1) + b"x" + struct.pack(">BI", 0, 0),
        struct.pack(">BI", 9, 0) * 2,
        struct.pack(">BI", 1, 2**32 - 1) + b"x",
    ],
)
async def test_a_relay_that_answers_something_else_is_found_out(lead: Member, reply: bytes) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=httpx.ByteStream(reply)))
    store = HttpStore("http://127.0.0.1:1", vault=lead.vault, token=lead.token, transport=transport)
    with pytest.raises(BadReply):
        await store.read_many([f"{lead.prefix}blob/1", f"{lead.prefix}blob/2"], 5)
    await store.aclose()


@pytest.mark.parametrize(
    "reply", [b"", b"[]", b'{"created": [true]}', b'{"created": [1, 2]}', b'{"created": 1}']
)
async def test_a_relay_that_says_nonsense_of_writes_is_found_out(lead: Member, reply: bytes) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=httpx.ByteStream(reply)))
    store = HttpStore("http://127.0.0.1:1", vault=lead.vault, token=lead.token, transport=transport)
    with pytest.raises(BadReply):
        await store.write_many(blobs(lead, 2))
    await store.aclose()


async def test_a_vault_that_is_not_there_is_not_taken_for_an_older_relay(relay: ServedRelay) -> None:
    nobody = Member()
    store = nobody.store(relay.url)
    with pytest.raises((Unauthorized, Forbidden)):
        await store.read_many([f"{nobody.prefix}blob/1"], 10)
    await store.aclose()


# --- decorators ---


class _LosesReplies(HttpStore):
    """The first write happens, but its reply is lost."""

    lost = False

    async def write_many(self, objects: Sequence[tuple[str, bytes]]) -> Sequence[bool | Lacking]:
        written = await super().write_many(objects)
        if not self.lost:
            self.lost = True
            raise StoreUnavailable("lost")
        return written


async def test_a_write_whose_reply_was_lost_counts_as_made(relay: ServedRelay, lead: Member) -> None:
    inner = _LosesReplies(relay.url, vault=lead.vault, token=lead.token)

    async def no_sleep(_: float) -> None:
        return

    store = RetryingStore(inner, sleep=no_sleep)
    objects = blobs(lead, 3)
    foreign = (objects[2][0], b"what another one wrote")
    await inner.put_new(*foreign)
    assert await store.write_many(objects) == [True, True, False]
    await store.aclose()


async def test_within_a_limit_of_bandwidth_objects_travel_alone(store: HttpStore, lead: Member) -> None:
    paced = PacedStore(store, up=Pace(64 * KIB), down=Pace(64 * KIB))
    assert await paced.write_many(blobs(lead, 2)) == [Lacking.ALONE] * 2
    assert await paced.read_many([key for key, _ in blobs(lead, 2)], 10) == [Lacking.ALONE] * 2


# --- frames ---

_BODIES = st.lists(st.binary(max_size=50), min_size=1, max_size=20)


@given(_BODIES)
def test_writes_come_apart_as_they_were_put_together(bodies: list[bytes]) -> None:
    objects = [(f"blob/{number}", body) for number, body in enumerate(bodies)]
    assert parse_writes(encode_writes(objects)) == objects


@given(st.lists(st.one_of(st.binary(max_size=50), st.sampled_from(Lacking)), min_size=1, max_size=20))
def test_reads_come_apart_as_they_were_put_together(found: list[Found]) -> None:
    assert parse_reads(encode_reads(found), len(found), 50) == found


@given(st.binary(max_size=200))
def test_any_bytes_are_writes_or_a_bad_request(body: bytes) -> None:
    try:
        objects = parse_writes(body)
    except BadRequest:
        return
    assert encode_writes(objects) == body


@given(_BODIES, st.data())
def test_cut_writes_are_refused(bodies: list[bytes], data: st.DataObject) -> None:
    whole = encode_writes([(f"blob/{number}", body) for number, body in enumerate(bodies)])
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with contextlib.suppress(BadRequest):
        assert len(parse_writes(cut)) < len(bodies)


def test_frames_beyond_the_limits_are_refused() -> None:
    with pytest.raises(BadRequest, match="at most"):
        parse_writes(encode_writes([(f"blob/{number}", b"") for number in range(BATCH_OBJECTS_MAX + 1)]))
    with pytest.raises(BadRequest, match="twice"):
        parse_writes(encode_writes([("blob/1", b""), ("blob/1", b"")]))
    with pytest.raises(BadRequest, match="larger"):
        parse_writes(struct.pack(">HI", 6, BATCH_OBJECT_BYTES_MAX + 1) + b"blob/1")
    with pytest.raises(BadRequest, match="larger"):
        parse_writes(struct.pack(">HI", 0, 1) + b"x")
