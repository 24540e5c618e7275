"""One device of the prototype, or all of a space, that take what they can get: the relay and other spaces go on."""

import asyncio
import contextlib
from collections.abc import Callable

from crystal_prototype.relay.names import Role
from crystal_relay.limits import KIB, MIB
from crystal_relay.server.load import GATHERED_BYTES_OF_VAULT_MAX, STREAM_BYTES
from tests.prototype.device import let_in
from tests.support.hand_written import connected
from tests.support.relay_server import ServedRelay


def head(method: str, path: str, token: str, size: int = 0) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: relay", f"Authorization: Bearer {token}"]
    return "\r\n".join([*lines, f"Content-Length: {size}", "\r\n"]).encode()


async def test_one_spaces_stalled_drops_leave_room_for_another_space(relay: ServedRelay) -> None:
    greedy = (await let_in(relay.store, "cc-greedy", Role.NODE, "one"))[0]
    other = (await let_in(relay.store, "cc-other", Role.NODE, "two"))[0]
    load = relay.app.state.relay.objects.load
    fitting = GATHERED_BYTES_OF_VAULT_MAX // STREAM_BYTES
    async with contextlib.AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(connected(relay.url)) for _ in range(fitting + 2)]
        for each in connections[:fitting]:
            await each.send(head("POST", "/drop/conversations", greedy, 8 * MIB) + bytes(KIB))
        async with asyncio.timeout(10):
            while load.gathered_bytes < GATHERED_BYTES_OF_VAULT_MAX:  # noqa: ASYNC110  (a count has no event)
                await asyncio.sleep(0.01)
        await connections[-2].send(head("POST", "/drop/conversations", greedy, 8 * MIB) + bytes(KIB))
        assert (await connections[-2].reply()).status == 503
        await connections[-1].send(head("POST", "/drop/conversations", other, 2 * MIB) + bytes(2 * MIB))
        assert (await connections[-1].reply()).status in (200, 201)


async def test_a_long_list_that_nobody_reads_counts_until_it_was_taken(relay: ServedRelay) -> None:
    node = (await let_in(relay.store, "cc-node", Role.NODE))[0]
    core = (await let_in(relay.store, "cc-core", Role.CORE))[0]
    load = relay.app.state.relay.objects.load
    held: list[int] = []
    answering: Callable[[str, int], contextlib.AbstractContextManager[None]] = load.answering

    def watched(share: str, size: int) -> contextlib.AbstractContextManager[None]:
        held.append(size)
        return answering(share, size)

    load.answering = watched
    async with connected(relay.url) as each:
        for number in range(500):
            await each.send(head("POST", "/drop/conversations", node, 4) + b"%04d" % number)
            assert (await each.reply()).status in (200, 201)
        await each.send(head("GET", "/pickup/conversations", core))
        reply = await each.reply()
    assert reply.json["count"] == 500
    assert held == [len(reply.body)]
    assert load.answered_bytes == 0
