"""Each answer names its request, and so does the line of the log that is about it; neither says more."""

import json
import logging

import httpx
import pytest

from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.logs import LogForm, formatter
from crystal_relay.store import Page
from tests.support.hand_written import connected
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, served

BODY = b"the bytes of an object, which no log may hold"

SETTINGS = RelaySettings(enroll_token=ENROLL_TOKEN, quota_bytes=0, quota_entries=0)


class BrokenStore(MemoryStore):
    """Makes a mistake that names what it was asked for."""

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        if prefix.startswith("v/"):
            raise ValueError(f"{prefix} after {after}")
        return await super().list(prefix, after=after, limit=limit)


async def live(url: str, lead: Member) -> list[httpx.Response]:
    """One request of each kind: answered, refused, not understood, without a route, gone wrong."""
    vault = f"/v2/vaults/{lead.vault}"
    once = lead.authorization | {"If-None-Match": "*", "X-Request-Id": "chosen-by-the-client"}
    async with httpx.AsyncClient(base_url=url) as http:
        replies = [await http.put(f"{vault}/objects/devlog/0", content=BODY, headers=once) for _ in range(2)]
        replies.append(await http.get(f"{vault}/objects/devlog/0", headers=lead.authorization))
        replies.append(await http.get(f"{vault}/objects/devlog/none", headers=lead.authorization))
        replies.append(await http.get(f"{vault}/objects/devlog/0", headers={"Authorization": "Bearer x"}))
        replies.append(await http.get(f"{vault}/wait?timeout=0", headers=lead.authorization))
        replies.append(await http.get(f"{vault}/list", headers=lead.authorization))
        replies.append(await http.get(f"{vault}/nowhere/{lead.token}"))
        replies.append(await http.get(f"{vault}/objects/devlog/%2e%2e", headers=lead.authorization))
        replies.append(await http.get("/health"))
    return replies


async def test_a_request_is_named_in_its_answer_and_in_its_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "crystal_relay"):
        async with served(BrokenStore(), SETTINGS) as relay:
            lead = await enrolled(relay.url)
            caplog.clear()
            replies = await live(relay.url, lead)
    assert [reply.status_code for reply in replies] == [201, 412, 200, 404, 401, 200, 500, 404, 400, 200]
    names = [reply.headers["x-request-id"] for reply in replies]
    assert len(set(names)) == len(names)
    assert "chosen-by-the-client" not in names
    lines = [json.loads(formatter(LogForm.JSON).format(record)) for record in caplog.records]
    of_requests = {line["request_id"]: line for line in lines if "status" in line}
    assert set(of_requests) == set(names)
    for reply in replies:
        line = of_requests[reply.headers["x-request-id"]]
        assert (line["method"], line["status"]) == (reply.request.method, reply.status_code)
        assert line["ms"] >= 0
        assert line["sent"] == len(reply.content)
    assert of_requests[names[0]]["received"] == len(BODY)


@pytest.mark.parametrize("form", list(LogForm))
async def test_no_line_says_whose_request_it_was_or_what_about(
    caplog: pytest.LogCaptureFixture, form: LogForm
) -> None:
    with caplog.at_level(logging.DEBUG, "crystal_relay"):
        async with served(BrokenStore(), SETTINGS) as relay:
            lead = await enrolled(relay.url)
            await live(relay.url, lead)
    text = "\n".join(formatter(form).format(record) for record in caplog.records)
    assert "ValueError" in text
    assert "put_object" in text
    for name in (lead.vault, lead.device, lead.token, lead.token.partition(".")[2], "devlog", "127.0.0.1"):
        assert name not in text
    assert BODY.decode() not in text
    assert "chosen-by-the-client" not in text


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\na b: c\r\n\r\n"]
)
async def test_what_is_no_http_gets_an_error_like_all_others(relay: ServedRelay, garbage: bytes) -> None:
    async with connected(relay.url) as connection:
        await connection.send(garbage)
        reply = await connection.reply()
        assert (reply.status, reply.json["error"]) == (400, "bad-request")
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["x-request-id"]
        assert await connection.is_closed(5)
