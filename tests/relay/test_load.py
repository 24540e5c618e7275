"""Back-pressure: what a relay that is offered more than it can hold refuses, and what it goes on serving."""

import asyncio
import contextlib

import pytest

from crystal_relay.errors import Busy
from crystal_relay.limits import KIB
from crystal_relay.server.load import GATHERED_BYTES_OF_VAULT_MAX, Load
from tests.support.hand_written import connected, put_head
from tests.support.relay_server import Member, ServedRelay, enrolled

SIZE = 128 * KIB
FITTING = GATHERED_BYTES_OF_VAULT_MAX // SIZE


async def test_one_vaults_slow_bodies_are_shed_and_another_vault_goes_on(
    relay: ServedRelay, lead: Member
) -> None:
    other = await enrolled(relay.url)
    async with contextlib.AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(connected(relay.url)) for _ in range(FITTING)]
        for number, connection in enumerate(slow):
            await connection.send(put_head(lead, f"devlog/{number:08d}", SIZE) + b"x")
        one_more = await stack.enter_async_context(connected(relay.url))
        # The server takes connections in turns: the last one to begin is the one too many.
        load = relay.app.state.relay.objects.load
        async with asyncio.timeout(10):
            while load.gathered_bytes < GATHERED_BYTES_OF_VAULT_MAX:  # noqa: ASYNC110  (a count has no event)
                await asyncio.sleep(0.01)
        await one_more.send(put_head(lead, "devlog/one-more", SIZE) + b"x")
        refused = await one_more.reply()
        assert (refused.status, refused.json["error"], refused.headers["retry-after"]) == (503, "busy", "1")

        connection = await stack.enter_async_context(connected(relay.url))
        await connection.send(put_head(lead, "devlog/whole", 5) + b"whole")
        assert (await connection.reply()).status == 201, "what arrives whole needs no room"
        await connection.send(put_head(other, "devlog/0", SIZE) + bytes(SIZE // 2))
        await connection.send(bytes(SIZE - SIZE // 2))
        assert (await connection.reply()).status == 201, "another vault's room is its own"

        for slow_one in slow:
            await slow_one.send(bytes(SIZE - 1))
        assert {(await each.reply()).status for each in slow} == {201}
    assert load.gathered_bytes == 0


def test_room_is_given_back_whatever_happens_to_the_body() -> None:
    load = Load(bytes_max=100, bytes_of_vault_max=60)
    with pytest.raises(ZeroDivisionError), load.gathering("a", 60):
        raise ZeroDivisionError
    with load.gathering("a", 60), load.gathering("b", 40):
        for vault in ("a", "b", "c"):
            with pytest.raises(Busy), load.gathering(vault, 1):
                pass
    assert load.gathered_bytes == 0


async def test_every_answer_names_its_request(relay: ServedRelay, lead: Member) -> None:
    names: list[str] = []
    async with connected(relay.url) as connection:
        for request in (
            put_head(lead, "devlog/0", 1) + b"x",
            put_head(lead, "devlog/0", 1) + b"x",
            put_head(lead, "nowhere/0", 1) + b"x",
            b"GET /health HTTP/1.1\r\nHost: relay\r\nX-Request-Id: chosen\r\n\r\n",
            b"GET /nowhere HTTP/1.1\r\nHost: relay\r\n\r\n",
        ):
            await connection.send(request)
            names.append((await connection.reply()).headers["x-request-id"])
    assert len(set(names)) == len(names)
    assert "chosen" not in names
