"""Requests for objects that are read without the general parser: only those that it would read in the same way."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_relay.client.http import HttpStore
from crystal_relay.limits import LOG_ENTRY_BYTES_MAX
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, connection
from crystal_relay.server.object_requests import object_request
from crystal_relay.tokens import new_token
from tests.support.hand_written import get_head
from tests.support.raw_http import RawConnection
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, served

NARROW = RelaySettings(enroll_token=ENROLL_TOKEN, quota_bytes=4_000, quota_entries=0)

VAULT = "a" * 32
PATH = f"/v2/vaults/{VAULT}/objects/devlog/0".encode()
TOKEN = b"Authorization: Bearer b.c\r\n"
PUT = b"PUT " + PATH + b" HTTP/1.1\r\nHost: relay\r\n" + TOKEN + b"Content-Length: 4\r\n\r\nbody"
GET = b"GET " + PATH + b" HTTP/1.1\r\nHost: relay\r\n" + TOKEN + b"\r\n"
LIST = f"GET /v2/vaults/{VAULT}/list?prefix=devlog%2F&limit=1 HTTP/1.1\r\nHost: relay\r\n\r\n".encode()


class Parsed:
    """What uvicorn's parser makes of the first request of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.complete = 0
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(data)
        self.method = self._parser.get_method()
        self.version = self._parser.get_http_version()
        self.keeps_alive = self._parser.should_keep_alive()
        self.upgrades = self._parser.should_upgrade()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete += 1


def agrees(data: bytes) -> bool:
    """Whether the request is taken. Fails if the general parser reads it otherwise."""
    asked = object_request(data, 0, None)
    if asked is None:
        return False
    parsed = Parsed(data[: asked.end])
    assert parsed.complete == 1
    assert (parsed.method, parsed.version) == (asked.method, "1.1")
    assert parsed.url == asked.path + (b"?" + asked.query if asked.query else b"")
    assert parsed.headers == asked.fields.headers
    assert parsed.body == asked.body
    assert not parsed.upgrades
    assert object_request(data, 0, asked.fields) == asked
    assert object_request(b"xy" + data, 2, None) == asked._replace(end=asked.end + 2)
    if data[asked.end - 1 : asked.end] and asked.end > 1:
        try:
            assert Parsed(data[: asked.end - 1]).complete == 0
        except httptools.HttpParserError:
            pytest.fail("the general parser refuses what begins so")
    return True


@pytest.mark.parametrize("data", [PUT, GET, LIST, PUT + GET, GET + PUT, GET.replace(b"GET", b"HEAD", 1)])
def test_what_devices_send_is_taken(data: bytes) -> None:
    assert agrees(data)


@pytest.mark.parametrize(
    "data",
    [
        PUT[:-1],  # a body that is still to come
        GET[:-1],
        PUT.replace(b"Content-Length: 4\r\n", b""),
        PUT.replace(b"Content-Length: 4", b"Content-Length: 4\r\nContent-Length: 4"),
        PUT.replace(b"Content-Length: 4", b"Content-Length: 4\r\nTransfer-Encoding: chunked"),
        PUT.replace(b"Content-Length: 4", b"Content-Length: +4"),
        PUT.replace(b"Content-Length: 4", b"Content-Length: 04"),
        PUT.replace(b"Content-Length: 4", b"Content-Length: 4, 4"),
        PUT.replace(b"Content-Length: 4", b"Content-Length : 4"),
        PUT.replace(b"Content-Length: 4", b"Content-Length: 4 "),
        PUT.replace(b"Content-Length: 4", b"Content-Length:\r\n 4"),
        PUT.replace(b"Content-Length: 4", b"Content-Length: 4\r\nExpect: 100-continue"),
        GET.replace(b"Host: relay", b"Content-Length: 0"),
        GET.replace(b"Host: relay", b"Connection: close"),
        GET.replace(b"Host: relay", b"Connection: upgrade"),
        GET.replace(b"Host: relay", b"Upgrade: h2c"),
        GET.replace(b"Host: relay", b"X-Anything: a"),
        GET.replace(b"Host: relay", b"Host: a\r\nhost: b"),
        GET.replace(b"Host: relay", b"Host: a\x00b"),
        GET.replace(b"Host: relay", b"Host: a\xe4"),
        GET.replace(b"\r\n", b"\n"),
        GET.replace(b"HTTP/1.1", b"HTTP/1.0"),
        GET.replace(b"GET ", b"GET  "),
        GET.replace(b"devlog/0", b"devlog/0?a=b"),
        GET.replace(b"devlog/0", b"devlog/%30"),
        GET.replace(b"devlog/0", b"devlog/0#a"),
        GET.replace(b"/v2", b"http://relay/v2"),
        GET.replace(b"GET", b"POST"),
        GET.replace(b"objects/devlog/0", b"wait"),
        GET.replace(b"objects/devlog/0", b"health?a=b"),
        LIST.replace(b"?prefix=devlog%2F&limit=1", b""),
        b"\r\n" + GET,
    ],
)
def test_what_is_in_any_other_form_is_left_to_the_general_parser(data: bytes) -> None:
    assert object_request(data, 0, None) is None


_PIECES = [
    *(
        b"PUT ",
        b"GET ",
        b"HEAD ",
        b"DELETE ",
        PATH,
        b" HTTP/1.1\r\n",
        b"\r\n",
        b"\n",
        b" ",
        b"\t",
        b"\r",
        b"\0",
    ),
    *(
        b"Host: relay\r\n",
        TOKEN,
        b"Content-Length: 4\r\n",
        b"content-length: 0\r\n",
        b"Content-Length: 40\r\n",
    ),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: Keep-Alive\r\n",
        b"Connection: close\r\n",
        b"Accept: */*\r\n",
    ),
    *(
        b"Range: bytes=0-3\r\n",
        b"Via:1.1 a\r\n",
        b"X-Forwarded-For: 1.2.3.4, 5.6.7.8\r\n",
        b"body",
        b"4\r\nbody\r\n",
    ),
    *(b"/v2/vaults/" + b"a" * 32 + b"/list?limit=1", b"?a=b", b"0\r\n\r\n", b":", b"\xff"),
]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(_PIECES), max_size=14))
def test_no_bytes_are_read_otherwise_than_by_the_general_parser(pieces: list[bytes]) -> None:
    agrees(b"".join(pieces))


@settings(max_examples=400)
@given(
    st.sampled_from([PUT + GET, GET + PUT, LIST + GET]),
    st.lists(st.tuples(st.integers(0, 260), st.integers(0, 3), st.binary(max_size=3)), max_size=3),
)
def test_no_damaged_request_is_read_otherwise(data: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    for at, removed, put in edits:
        data = data[:at] + put + data[at + removed :]
    agrees(data)


async def test_the_requests_of_a_device_are_in_that_form(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []

    def looked(*given: Any) -> Any:
        taken.append(object_request(*given))
        return taken[-1]

    monkeypatch.setattr(connection, "object_request", looked)
    async with _relay() as relay:
        member = await enrolled(relay.url)
        taken.clear()
        store = HttpStore(relay.url, vault=member.vault, token=member.token)
        key = f"{member.prefix}devlog/0"
        await store.put_new(key, b"body")
        await store.put(f"{member.prefix}cursor/{member.device}", b"")
        assert await (await store.get(key)).read() == b"body"
        assert await (await store.get(key, start=1, length=2)).read() == b"od"
        assert len((await store.list(f"{member.prefix}devlog/")).entries) == 1
        await store.wait(member.prefix, token=None, timeout=0)
        await store.delete(key)
        await store.aclose()
    assert len(taken) == 7
    assert all(taken)


async def test_an_answer_is_the_same_in_whatever_pieces_a_request_comes() -> None:
    async with _relay() as relay:
        member = await enrolled(relay.url)
        line = f"/v2/vaults/{member.vault}/objects/devlog".encode()
        token = f"Authorization: Bearer {member.token}\r\n".encode()
        put = b"PUT %s/0 HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n%sContent-Length: 4\r\n\r\nbody" % (
            line,
            token,
        )
        get = b"GET %s/0 HTTP/1.1\r\nHost: a\r\n%s\r\n" % (line, token)
        head, none = get.replace(b"GET", b"HEAD", 1), get.replace(b"devlog/0", b"devlog/1")
        part = get.replace(b"\r\nHost", b"\r\nRange: bytes=1-2\r\nHost", 1)
        all_of_them = put + put + get + head + part + none + get.replace(b"Host: a", b"X-Y: a") + get
        connected = await RawConnection.to(relay.url)
        for size in (len(all_of_them), len(put), 97, 3):
            for at in range(0, len(all_of_them), size):
                await connected.send(all_of_them[at : at + size])
                if size < len(put):
                    await asyncio.sleep(0)
            replies = [await connected.reply(head_only=each == 3) for each in range(8)]
            first = 201 if size == len(all_of_them) else 412
            assert [each.status for each in replies] == [first, 412, 200, 200, 206, 404, 200, 200]
            assert [each.body for each in replies[2:5]] == [b"body", b"", b"od"]
            assert [each.body for each in replies[6:]] == [b"body", b"body"]
            assert replies[3].headers["content-length"] == "4"
            names = [set(each.headers) for each in replies]
            assert names[2] == names[3] == names[6] == names[7]
        await connected.send(get.replace(b"Host: a", b"Connection: close"))
        assert (await connected.reply()).body == b"body"
        assert await connected.is_closed(5)
        await connected.close()


@pytest.mark.parametrize("cut", range(6))
async def test_each_answer_is_that_of_its_request_wherever_the_head_before_was_cut(cut: int) -> None:
    async with _relay() as relay:
        member = await enrolled(relay.url)
        store = HttpStore(relay.url, vault=member.vault, token=member.token)
        for number in range(3):
            await store.put_new(f"{member.prefix}devlog/{number}", b"%d" % number)
        await store.aclose()
        first, *others = (
            get_head(member, f"/v2/vaults/{member.vault}/objects/devlog/{number}") for number in range(3)
        )
        connected = await RawConnection.to(relay.url)
        await connected.send(first[: len(first) - cut])
        await asyncio.sleep(0.05)
        await connected.send(first[len(first) - cut :] + b"".join(others))
        assert [(await connected.reply()).body for _ in range(3)] == [b"0", b"1", b"2"]
        await connected.close()


COUNTED = {
    f"crystal_relay_{name}"
    for name in (
        "requests_total",
        "request_seconds_count",
        "received_bytes_total",
        "sent_bytes_total",
        "errors_total",
        "limited_total",
        "store_seconds_count",
        "store_queue_seconds_count",
    )
}
"""Metrics that do not depend on when they are read."""
Step = tuple[str, str, list[str], bytes]
"""Method, what comes after the vault, headers beside the usual, body."""
CREATE = ["If-None-Match: *"]


def _steps(member: Member) -> Iterator[Step]:
    """Every kind of answer that a request for an object or a list can have, refusals in their order too."""
    own, log = f"objects/conversations/{member.device}.{'0' * 16}/1", "objects/devlog/1"
    bearer = f"Authorization: Bearer {member.token}"
    yield "PUT", own, [bearer, *CREATE], b"body"
    yield "PUT", own, [bearer, *CREATE], b"other"
    yield "PUT", own, [bearer], b"other"
    yield "PUT", own, [bearer, "If-None-Match: a"], b"other"
    yield "PUT", own.replace(member.device, "0" * 32), [bearer, *CREATE], b"body"
    yield "PUT", f"objects/cursor/{member.device}", [bearer], b"1"
    yield "PUT", f"objects/cursor/{member.device}", [bearer], b""
    yield "PUT", log, [bearer, *CREATE], bytes(LOG_ENTRY_BYTES_MAX + 1)
    yield "PUT", log, [bearer, *CREATE], b"log"
    yield "PUT", log, [bearer], b"mended"
    yield "PUT", "objects/nothing/1", [bearer, *CREATE], b"body"
    yield "PUT", "objects/devlog/..", [bearer, *CREATE], b"body"
    yield "PUT", f"objects/invite/{'a' * 32}/offer", [bearer, *CREATE], b"body"
    for method in ("GET", "HEAD"):
        yield method, own, [bearer], b""
        yield method, log, [bearer], b""
        yield method, f"objects/cursor/{member.device}", [bearer], b""
        yield method, "objects/devlog/2", [bearer], b""
        for part in ("0-", "1-2", "3-99", "4-", "5-", "2-1", "-1", "a"):
            yield method, own, [bearer, f"Range: bytes={part}"], b""
        yield method, f"objects/invite/{'a' * 32}/offer", [bearer], b""
        yield method, "list?limit=2", [bearer], b""
        yield method, "list?prefix=devlog%2F&after=devlog%2F0", [bearer], b""
        yield method, "list?limit=0", [bearer], b""
        yield method, "list?limit=1&limit=1", [bearer], b""
    yield "GET", own, [], b""
    yield "GET", own, ["Authorization: Bearer x"], b""
    yield "GET", own, [f"Authorization: Bearer {new_token(member.device)}"], b""
    yield "PUT", own, ["Authorization: Basic x", *CREATE], b"body"
    yield "PUT", "objects/devlog/full", [bearer, *CREATE], bytes(3_000)
    yield "PUT", f"objects/blob/{'a' * 32}", [bearer, *CREATE], bytes(3_000)
    yield "PUT", f"objects/blob/{'b' * 32}", [bearer, *CREATE], bytes(3_000)
    yield "DELETE", own, [bearer], b""
    yield "GET", own, [bearer], b""
    yield "DELETE", own, [bearer], b""


async def _answers(
    directory: Path, *, general: bool, settings: RelaySettings = NARROW, stops: bool = False
) -> tuple[list[Any], dict[str, Any]]:
    """The answers to all steps, and what the relay counted. `general`: left to the general parser, by a header."""
    store = LocalStore(directory)
    async with served(store, settings) as served_relay:
        relay = served_relay.app.state.relay
        member = await enrolled(served_relay.url)
        await relay.usage.counted()
        connected = await RawConnection.to(served_relay.url)
        answers: list[Any] = []
        if stops:
            relay.health.stopping()
        for method, what, headers, body in _steps(member):
            lines = [f"{method} /v2/vaults/{member.vault}/{what} HTTP/1.1", "Host: relay", *headers]
            if method == "PUT":
                lines.append(f"Content-Length: {len(body)}")
            if general:
                lines.append("X-Other: a")
            await connected.send("\r\n".join([*lines, "", ""]).encode() + body)
            reply = await connected.reply(head_only=method == "HEAD")
            shown = {
                name: value for name, value in reply.headers.items() if name not in ("date", "x-request-id")
            }
            text = reply.body.replace(member.device.encode(), b"device")
            # The count that a write starts may include that write or not (see `usage`).
            text = re.sub(rb"it has \d objects of any number and \d{4} bytes", b"it has so many", text)
            answers.append((method, what.replace(member.device, "device"), reply.status, shown, text))
            await relay.usage.counted()
            if shown.get("connection") == "close":
                assert await connected.is_closed(5)
                await connected.close()
                connected = await RawConnection.to(served_relay.url)
        await connected.close()
        counted: dict[str, Any] = {"refused": (relay.usage.refused, relay.rates.refused_devices)}
        for family in relay.metrics.families():
            for sample in family.samples:
                if sample.name in COUNTED:
                    counted[f"{sample.name} {sorted(sample.labels.items())}"] = sample.value
        assert relay.fair_store.small.running == 0
        assert {name.partition(" ")[0] for name in counted} == COUNTED | {"refused"}
    await store.aclose()
    return answers, counted


@pytest.mark.parametrize("stops", [False, True])
async def test_what_is_answered_at_once_is_answered_and_counted_as_by_the_general_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stops: bool
) -> None:
    """In both ways: a quota that fills, refusals before and after others, and a process that stops."""
    within_task: list[bool] = []
    answer = connection.Connection.answer

    def noted(self: connection.Connection, *given: Any) -> bool:
        within_task.append(asyncio.current_task() is not None)
        return answer(self, *given)

    monkeypatch.setattr(connection.Connection, "answer", noted)
    at_once, counted = await _answers(tmp_path / "a", general=False, stops=stops)
    assert within_task.count(False) >= 10, "what is in memory is answered within no task"
    within_task.clear()
    general, counted_so = await _answers(tmp_path / "b", general=True, stops=stops)
    assert all(within_task)
    assert at_once == general
    assert counted == counted_so
    statuses = {answer[2] for answer in at_once}
    assert statuses >= {200, 201, 204, 206, 400, 401, 403, 404, 412, 413, 416, 507}


async def test_a_rate_counts_each_request_once_in_both_ways(tmp_path: Path) -> None:
    settings = RelaySettings(enroll_token=ENROLL_TOKEN, rate_per_token=0.01)
    at_once, _ = await _answers(tmp_path / "a", general=False, settings=settings)
    general, _ = await _answers(tmp_path / "b", general=True, settings=settings)
    assert [answer[2] for answer in at_once] == [answer[2] for answer in general]
    assert [answer[2] for answer in at_once][:2] == [201, 429]


async def test_requests_that_come_together_leave_turns_of_the_loop_to_others(tmp_path: Path) -> None:
    """The first of them runs at once; of hundreds behind it each takes a turn."""
    store = LocalStore(tmp_path / "store")
    async with served(store, RelaySettings(enroll_token=ENROLL_TOKEN)) as relay:
        member = await enrolled(relay.url)
        client = HttpStore(relay.url, vault=member.vault, token=member.token)
        await client.put_new(f"{member.prefix}devlog/0", b"body")
        await client.aclose()
        get = get_head(member, f"/v2/vaults/{member.vault}/objects/devlog/0")
        turns = 0

        def count() -> None:
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_soon(count)

        connected = await RawConnection.to(relay.url)
        await connected.send(get)
        await connected.reply()
        count()
        await connected.send(get * 200)
        for _ in range(200):
            assert (await connected.reply()).body == b"body"
        assert turns >= 150
        await connected.close()
    await store.aclose()


def _relay() -> AbstractAsyncContextManager[ServedRelay]:
    return served(MemoryStore(), RelaySettings(enroll_token=ENROLL_TOKEN, quota_bytes=0, quota_entries=0))
