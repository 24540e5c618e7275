"""Lines to a relay that this process carries, connection by connection: for machines without namespaces.

    with lines(relay.url, random) as network:
        laptop = network.join()                   # laptop.url is where this device finds the relay
        laptop.weather = CUT

TCP hides lost packets, so what is left of a bad network are connections that break in the middle of a request or of its
answer, that wait, and that say nothing more.
"""

import asyncio
import contextlib
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from urllib.parse import urlsplit

from tests.support.networks.weather import CALM, Weather

_PIECE_BYTES = 16 * 1024
_REQUEST = b" HTTP/1.1\r\n"
_LOOK_SECONDS = 0.02
"""How often a line that is silent looks whether the weather has changed."""


@dataclass(eq=False)
class Line:
    """A device's way to the relay."""

    random: Random
    upstream: tuple[str, int]
    url: str = ""
    weather: Weather = CALM
    connections: int = 0
    requests: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    broken: int = 0
    _open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        self.connections += 1
        self._open.add(writer)
        try:
            while (
                not self.weather.to_relay
            ):  # it hears nothing, neither that it is connected nor that it is not
                if reader.at_eof():
                    return
                await asyncio.sleep(_LOOK_SECONDS)
            there, back = await asyncio.open_connection(*self.upstream)
            self._open.add(back)
            try:
                up = asyncio.create_task(self._pump(reader, back, up=True))
                down = asyncio.create_task(self._pump(there, writer, up=False))
                await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
                up.cancel()
                down.cancel()
                await asyncio.gather(up, down, return_exceptions=True)
            finally:
                self._open.discard(back)
                back.transport.abort()
        except OSError:
            return
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, up: bool) -> None:
        while data := await source.read(_PIECE_BYTES):
            while True:
                weather = self.weather
                if weather.to_relay if up else weather.from_relay:
                    break
                await asyncio.sleep(_LOOK_SECONDS)
            await asyncio.sleep(weather.delay + self.random.uniform(0.0, weather.jitter))
            if weather.bytes_per_second:
                await asyncio.sleep(len(data) / weather.bytes_per_second)
            if self.random.random() < weather.loss:
                self.broken += 1
                sink.write(data[: self.random.randrange(len(data))])
                with contextlib.suppress(OSError):
                    await sink.drain()
                return
            if up:
                self.bytes_up += len(data)
                self.requests += data.count(_REQUEST)
            else:
                self.bytes_down += len(data)
            sink.write(data)
            await sink.drain()

    def abort_all(self) -> None:
        """In the loop's thread."""
        for writer in tuple(self._open):
            writer.transport.abort()


@dataclass
class Lines:
    """The lines of a vault, and the thread that carries them."""

    upstream: tuple[str, int]
    random: Random
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    all: list[Line] = field(default_factory=list[Line])
    _servers: list[asyncio.Server] = field(default_factory=list[asyncio.Server])

    def join(self) -> Line:
        """One more line, for one more device."""
        line = Line(self.random, self.upstream)

        async def listen() -> None:
            server = await asyncio.start_server(line.carry, "127.0.0.1", 0)
            self._servers.append(server)
            line.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

        asyncio.run_coroutine_threadsafe(listen(), self.loop).result(10)
        self.all.append(line)
        return line

    async def close(self) -> None:
        """In the loop's thread: nothing is carried any more."""
        for server in self._servers:
            server.close()
        for line in self.all:
            line.abort_all()
        own = asyncio.current_task()
        carrying = [task for task in asyncio.all_tasks() if task is not own]
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)
        await asyncio.sleep(0)  # what was aborted is closed in the loop's next turn


@contextlib.contextmanager
def lines(relay_url: str, random: Random) -> Generator[Lines]:
    """Lines to an http relay on loopback."""
    address = urlsplit(relay_url)
    network = Lines((address.hostname or "", address.port or 80), random)
    thread = threading.Thread(target=network.loop.run_forever, name="lines", daemon=True)
    thread.start()
    try:
        yield network
    finally:
        asyncio.run_coroutine_threadsafe(network.close(), network.loop).result(10)
        network.loop.call_soon_threadsafe(network.loop.stop)
        thread.join()
        network.loop.close()
