"""Relay processes in the test's own loop that share a store and nothing else, and the wires between them to cut."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from crystal_relay.limits import LIST_LIMIT_MAX
from crystal_relay.memory import MemoryStore
from crystal_relay.notify import Notifier
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.app import Relay
from crystal_relay.server.peers import Peers, PeerTimes
from crystal_relay.server.serving import Server, listen
from crystal_relay.store import Body, Object, Page
from tests.support.relay_server import ENROLL_TOKEN

QUICK = PeerTimes(heartbeat=0.1, retry_last=0.2, greeting=1.0, announcement=1.0, farewell=1.0)


class SharedStore:
    """What one process sees of a store that several share: a notifier of its own, and the objects of all."""

    def __init__(self, shared: MemoryStore, notifier: Notifier | None = None) -> None:
        self.notifier = notifier or Notifier()
        self.lists = 0
        self.gets = 0
        self.shared = shared

    async def put_new(self, key: str, body: bytes | Body) -> None:
        await self.shared.put_new(key, body)
        self.notifier.written(key)

    async def put(self, key: str, body: bytes | Body) -> None:
        await self.shared.put(key, body)
        self.notifier.written(key)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        self.gets += 1
        return await self.shared.get(key, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        self.lists += 1
        return await self.shared.list(prefix, after=after, limit=limit)

    async def delete(self, key: str) -> None:
        await self.shared.delete(key)

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        return await self.notifier.wait(prefix, token, timeout)

    async def aclose(self) -> None:
        self.notifier.wake_all()


class Wire:
    """Where the others reach a process: a way through that can be cut."""

    def __init__(self) -> None:
        self.url = ""
        self._port = 0
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        self._cut = True
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self._cut = False

    @asynccontextmanager
    async def to(self, port: int) -> AsyncGenerator[None]:
        self._port = port
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.close()
            self.cut()
            await asyncio.gather(*self._carrying)
            await asyncio.sleep(0)  # what was aborted is closed in the loop's next turn

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        self._writers.add(writer)
        try:
            if not self._cut:
                there, back = await asyncio.open_connection("127.0.0.1", self._port)
                self._writers.add(back)
                await asyncio.gather(_pump(reader, back), _pump(there, writer))
                self._writers.discard(back)
        except OSError:
            return
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._carrying.discard(task)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    with suppress(OSError):
        sink.close()


@dataclass
class RunningProcess:
    """One relay process."""

    url: str
    store: SharedStore
    peers: Peers
    relay: Relay
    wire: Wire
    killed: bool = False

    @property
    def name(self) -> str:
        return self.peers.here.name

    async def kill(self) -> None:
        """It is gone at once: no goodbye, and its record stays."""
        self.killed = True
        self.wire.cut()
        self.store.notifier.on_written = None
        peers = tuple(self.peers._peers.values())  # pyright: ignore[reportPrivateUsage]
        tasks = [*self.peers._tasks, *(peer.task for peer in peers)]  # pyright: ignore[reportPrivateUsage]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for peer in peers:
            await peer.sender.aclose()


@asynccontextmanager
async def process(
    shared: MemoryStore, *, times: PeerTimes = QUICK, clock: Callable[[], float] | None = None
) -> AsyncGenerator[RunningProcess]:
    """A relay process over what is shared, known to the others when this returns."""
    store = SharedStore(shared)
    listener = listen("127.0.0.1", 0)
    wire = Wire()
    async with wire.to(listener.getsockname()[1]):
        peers = Peers(
            store,
            store.notifier,
            url=wire.url,
            times=times,
            clock=clock or asyncio.get_running_loop().time,
        )
        app = create_app(store, RelaySettings(enroll_token=ENROLL_TOKEN), peers=peers)
        server = Server(app, listener)
        serving = asyncio.create_task(server.serve())
        running = RunningProcess(server.url, store, peers, app.state.relay, wire)
        await peers.start()
        try:
            yield running
        finally:
            server.stop()
            await serving
            if not running.killed:
                await peers.stop()
            await store.aclose()


async def eventually(holds: Callable[[], bool] | Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    """Return once it holds."""
    async with asyncio.timeout(seconds):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.005)


def vault() -> str:
    return secrets.token_hex(16)
