"""What a relay process takes from another: only what one with the secret said, to it, once."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio

from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.peers import announce_forget
from crystal_relay.server.peers.messages import (
    AUTHORIZATION,
    BODY_BYTES_MAX,
    FORGET_MAX,
    PATH,
    News,
    answer,
    sign,
)
from crystal_relay.server.peers.records import SECRET_KEY, ProcessRecords
from crystal_relay.server.peers.transport import NotHeard, PeerConnection
from tests.support.odd_server import odd_server, reply, says
from tests.support.processes import RunningProcess, eventually, process
from tests.support.raw_http import RawConnection
from tests.support.relay_server import enrolled, served

ORIGIN = "0123456789abcdef"
VAULT = "ab" * 16


@pytest_asyncio.fixture
async def at() -> AsyncGenerator[RunningProcess]:
    async with process(MemoryStore()) as running:
        yield running


async def secret_of(at: RunningProcess) -> bytes:
    secret = await ProcessRecords(at.store).known_secret()
    assert secret is not None
    return secret


def news(at: RunningProcess, **members: Any) -> News:
    told: dict[str, Any] = {"origin": ORIGIN, "to": at.name, "sequence": 1, "url": "http://127.0.0.1:1"}
    return News(**(told | members))


async def post(at: RunningProcess, body: bytes, code: str | None, **headers: str) -> httpx.Response:
    authorization = {} if code is None else {"Authorization": AUTHORIZATION + code}
    async with httpx.AsyncClient(base_url=at.url) as client:
        return await client.post(PATH, content=body, headers=authorization | headers)


async def tell(at: RunningProcess, said: News) -> httpx.Response:
    body = msgspec.json.encode(said)
    return await post(at, body, sign(await secret_of(at), body))


async def test_a_message_is_heard_and_the_answer_proves_it(at: RunningProcess) -> None:
    said = msgspec.json.encode(news(at, last=3, groups=[("v/a/devlog/", 3)]))
    secret = await secret_of(at)
    got = await post(at, said, sign(secret, said))
    assert got.status_code == 200
    assert got.json() == {"heard": answer(secret, sign(secret, said))}
    assert at.store.notifier.others == {ORIGIN: 3}


async def test_a_stranger_is_refused_and_changes_nothing(at: RunningProcess) -> None:
    token = await at.store.wait("v/a/", token=None, timeout=0)
    said = msgspec.json.encode(news(at, last=3, groups=[("v/a/devlog/", 3)]))
    good = sign(await secret_of(at), said)
    for code in (None, "x", "0" * 64, good[:-1], good.upper(), good + "0", f" {good}", sign(b"", said)):
        got = await post(at, said, code)
        assert got.status_code == 401, code
        assert got.json()["error"] == "unauthorized"
    assert (await post(at, said + b" ", good)).status_code == 401
    async with httpx.AsyncClient(base_url=at.url) as client:
        bearer = await client.post(PATH, content=said, headers={"Authorization": f"Bearer {good}"})
    assert bearer.status_code == 401
    assert at.store.notifier.others == {}
    assert await at.store.wait("v/a/", token=token, timeout=0) == token
    assert at.peers.status().heard == 0


async def test_a_message_that_was_overheard_is_of_no_use(at: RunningProcess) -> None:
    first = news(at, last=1, groups=[("v/a/devlog/", 1)])
    assert (await tell(at, first)).status_code == 200
    token = await at.store.wait("v/a/", token=None, timeout=0)
    forgotten: list[str | None] = []
    at.peers.hearer.forget = forgotten.append
    later = news(at, sequence=2, first=2, last=1, forget=[VAULT])
    for _ in range(3):
        assert (await tell(at, later)).status_code == 200
        assert (await tell(at, first)).status_code == 200
    assert forgotten == [VAULT]
    assert await at.store.wait("v/a/", token=token, timeout=0.01) == token


async def test_a_message_for_another_process_is_refused(at: RunningProcess) -> None:
    for odd in (news(at, to="f" * 16), news(at, origin=at.name)):
        got = await tell(at, odd)
        assert got.status_code == 421
        assert got.json()["error"] == "another-process"
    assert at.store.notifier.others == {}


async def test_a_message_that_was_overheard_is_of_no_use_at_a_process_that_was_started_again() -> None:
    shared = MemoryStore()
    async with process(shared) as before:
        said = news(before, last=5)
    async with process(shared) as after:
        assert (await tell(after, said)).status_code == 421


async def test_what_is_no_message_is_refused(at: RunningProcess) -> None:
    secret = await secret_of(at)
    good: dict[str, Any] = msgspec.to_builtins(news(at))
    for wrong in (
        b"",
        b"{}",
        b"[]",
        b"\xff\xfe",
        *(
            msgspec.json.encode(good | odd)
            for odd in (
                {"origin": "x"},
                {"origin": ORIGIN + "\n"},
                {"sequence": -1},
                {"last": 10**18},
                {"first": "1"},
                {"groups": [["v/a/"]]},
                {"groups": [["x" * 300, 1]]},
                {"forget": ["..", "a"]},
                {"forget": [VAULT] * (FORGET_MAX + 1)},
                {"url": "x" * 5_000},
            )
        ),
    ):
        assert (await post(at, wrong, sign(secret, wrong))).status_code == 400, wrong
    assert at.store.notifier.others == {}


async def test_a_body_is_bounded_before_it_is_read(at: RunningProcess) -> None:
    body = b" " * (BODY_BYTES_MAX + 1)
    assert (await post(at, body, sign(await secret_of(at), body))).status_code == 413

    connection = await RawConnection.to(at.url)
    await connection.send(
        f"POST {PATH} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + b"1000\r\n"
    )
    assert (await connection.reply()).status == 411
    await connection.close()


async def test_a_relay_without_other_processes_has_no_such_route() -> None:
    store = MemoryStore()
    async with served(store, RelaySettings()) as relay, httpx.AsyncClient(base_url=relay.url) as client:
        for method in ("POST", "GET"):
            got = await client.request(method, PATH, content=b"{}" if method == "POST" else None)
            assert got.status_code == 404
            assert got.json()["error"] == "no-such-route"
    await store.aclose()


async def test_the_secret_is_made_once_and_is_the_same_for_all() -> None:
    store = MemoryStore()
    secrets = await asyncio.gather(*(ProcessRecords(store).secret() for _ in range(16)))
    assert len(set(secrets)) == 1
    assert len(secrets[0]) == 32
    kept = await (await store.get(SECRET_KEY)).read()
    assert bytes.fromhex(kept.decode()) == secrets[0]


async def test_something_else_at_the_address_does_not_pass_for_having_heard(at: RunningProcess) -> None:
    for text in (
        reply(200, b'{"heard":"' + b"0" * 64 + b'"}'),
        reply(200, b"OK"),
        reply(204),
        reply(302, b"", b"Location: http://127.0.0.1:1/"),
        reply(503, b"{}"),
        b"SSH-2.0-x\r\n\r\n",
    ):
        async with odd_server(says(text)) as url:
            line = PeerConnection(url)
            with pytest.raises(NotHeard):
                await line.tell(await secret_of(at), news(at))
            await line.aclose()


async def test_an_operators_command_makes_all_processes_forget_a_vault() -> None:
    shared = MemoryStore()
    async with process(shared) as one, process(shared) as other:
        lead = await enrolled(one.url)
        stores = [lead.store(each.url) for each in (one, other)]
        for store in stores:
            await store.list(lead.prefix)
        gets = [each.store.gets for each in (one, other)]
        known = [each.peers.status().known for each in (one, other)]
        told = await announce_forget(shared, lead.vault)
        assert (told.heard, told.not_heard) == (2, 0)
        for store in stores:
            await store.list(lead.prefix)
            await store.aclose()
        assert all(each.store.gets > before for each, before in zip((one, other), gets, strict=True))
        assert [each.peers.status().known for each in (one, other)] == known, "a command is no process"
        other.wire.cut()
        told = await announce_forget(shared, lead.vault)
        assert (told.heard, told.not_heard) == (1, 1)
    assert (await announce_forget(MemoryStore(), VAULT)).heard == 0


async def test_no_secret_and_no_code_is_in_a_log_or_an_error(
    at: RunningProcess, caplog: pytest.LogCaptureFixture
) -> None:
    secret = (await secret_of(at)).hex()
    with caplog.at_level("DEBUG"):
        async with process(at.store.shared) as other:
            await eventually(lambda: at.peers.status().reached == 1)
            other.wire.cut()
            await at.store.put_new("v/a/devlog/0", b"x")
            await eventually(lambda: at.peers.status().not_told > 0)
            body = b"{}"
            code = sign(await secret_of(at), body)
            await post(at, body, code)
            await post(at, body, "0" * 64)
            assert secret not in repr(other.peers.here)
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert said
    assert secret not in said
    assert code not in said
