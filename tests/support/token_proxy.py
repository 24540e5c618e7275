"""A proxy in front of a local server that wants a token, for programs that cannot send one. It passes on all else as it is."""

import asyncio
import queue
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"(?im)^content-length: *(\d+)")


@contextmanager
def with_token(url: str, token: str) -> Generator[str]:
    """The address at which ``url`` is reached without the token. Headers that name the proxy name the server instead."""
    parts = urlsplit(url)
    port = parts.port
    assert port is not None
    started: queue.Queue[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = queue.Queue()

    async def serve() -> None:
        over = asyncio.Event()
        server = await asyncio.start_server(
            lambda reader, writer: _pass_on(reader, writer, port, token), "127.0.0.1", 0
        )
        started.put((asyncio.get_running_loop(), over, server.sockets[0].getsockname()[1]))
        await over.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    loop, over, own = started.get(timeout=30)
    try:
        yield f"http://127.0.0.1:{own}{parts.path}"
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, token: str) -> None:
    own: int = writer.get_extra_info("sockname")[1]
    there, to = await asyncio.open_connection("127.0.0.1", port)
    back = asyncio.create_task(_copied(there, writer))
    try:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1])) if length else b""
                for name in (b"localhost", b"127.0.0.1"):
                    head = head.replace(b"%s:%d" % (name, own), b"127.0.0.1:%d" % port)
                to.write(head[:-2] + f"authorization: Bearer {token}\r\n\r\n".encode() + body)
                await to.drain()
    finally:
        back.cancel()
        to.close()
        writer.close()


async def _copied(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        target.close()
