"""The listening socket is copied where that helps, and nowhere else."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from crystal_relay.memory import MemoryStore
from crystal_relay.server.app import create_app
from crystal_relay.server.serving import ACCEPTED_AT_ONCE, Server, listen
from crystal_relay.server.settings import RelaySettings
from tests.support.relay_server import ENROLL_TOKEN


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_only_uvloop_listens_on_copies_of_the_socket(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[socket.socket] = []
    dup = socket.socket.dup

    def counted(listener: socket.socket) -> socket.socket:
        copies.append(dup(listener))
        return copies[-1]

    async def served() -> int:
        app = create_app(MemoryStore(), RelaySettings(enroll_token=ENROLL_TOKEN))
        server = Server(app, listen("127.0.0.1", 0))
        monkeypatch.setattr(socket.socket, "dup", counted)
        await server.serve(ready=server.stop)
        return len(copies)

    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if loop == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(served()) == (ACCEPTED_AT_ONCE - 1 if loop == "uvloop" else 0)
