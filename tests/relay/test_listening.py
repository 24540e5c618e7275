"""The listening socket is copied where that helps, and nowhere else."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from crystal_relay.memory import MemoryStore
from crystal_relay.server.app import create_app
from crystal_relay.server.serving import ACCEPTED_AT_ONCE, Server, listen
from crystal_relay.server.settings import RelaySettings
from crystal_relay.store import Object
from tests.support.hand_written import get_head
from tests.support.raw_http import RawConnection
from tests.support.relay_server import ENROLL_TOKEN, enrolled, served


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


async def test_a_forced_exit_ends_what_still_waits_for_the_store() -> None:
    class Stuck(MemoryStore):
        """A read of an object never ends. `ended`: how it was left."""

        began = asyncio.Event()
        ended: BaseException | None = None

        async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
            if key.startswith("v/"):
                self.began.set()
                try:
                    await asyncio.get_running_loop().create_future()
                except asyncio.CancelledError as cancelled:
                    await asyncio.sleep(0)  # as who tidies up
                    self.ended = cancelled
                    raise
            return await super().get(key, start=start, length=length)

    store = Stuck()
    async with served(store, RelaySettings(enroll_token=ENROLL_TOKEN)) as relay:
        lead = await enrolled(relay.url)
        device = await RawConnection.to(relay.url)
        await device.send(get_head(lead, f"/v2/vaults/{lead.vault}/list"))
        assert (await device.reply()).status == 200
        await device.send(get_head(lead, f"/v2/vaults/{lead.vault}/objects/devlog/0"))
        await store.began.wait()
        relay.server._uvicorn.force_exit = True  # pyright: ignore[reportPrivateUsage]  as by a second Ctrl-C
    assert isinstance(store.ended, asyncio.CancelledError)
    await device.close()
