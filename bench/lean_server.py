"""The least that a durable server can do: what the relay's writes are measured against.

    PUT /…     keeps the body, answers 201 when it is on the disk
    GET /…     answers with it

Every connection is an asyncio protocol that knows nothing of HTTP but what `bench.relay_load` sends; one thread writes what has
gathered into SQLite and commits it (WAL, `synchronous=FULL`). No rights, no limits, no quotas, no metrics, and nobody waits.

python -m bench.lean_server FILE     prints its address on stdout once it serves
"""

import asyncio
import socket
import sys
from queue import Empty, SimpleQueue
from threading import Thread
from typing import cast

import apsw
import uvloop

GROUP_MAX = 256
_CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"

_Write = tuple[bytes, bytes, "_Connection"]


class _Writer:
    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._database = apsw.Connection(path)
        self._database.pragma("journal_mode", "wal")
        self._database.pragma("synchronous", "full")
        self._database.execute("CREATE TABLE object (key BLOB PRIMARY KEY, body BLOB) WITHOUT ROWID")
        self._queue: SimpleQueue[list[_Write]] = SimpleQueue()
        self._gathered: list[_Write] = []
        Thread(target=self._run, daemon=True).start()

    def put(self, write: _Write) -> None:
        if not self._gathered:
            self._loop.call_soon(self._flush)
        self._gathered.append(write)

    def _flush(self) -> None:
        self._queue.put(self._gathered)
        self._gathered = []

    def _run(self) -> None:
        while True:
            group = self._queue.get()
            while len(group) < GROUP_MAX:
                try:
                    group += self._queue.get_nowait()
                except Empty:
                    break
            with self._database:
                self._database.executemany(
                    "INSERT OR IGNORE INTO object VALUES (?, ?)", ((key, body) for key, body, _ in group)
                )
            self._loop.call_soon_threadsafe(_answer, group)


def _answer(group: list[_Write]) -> None:
    for _, _, connection in group:
        connection.answer(_CREATED)


class _Connection(asyncio.Protocol):
    def __init__(self, writer: _Writer, kept: dict[bytes, bytes]) -> None:
        self._writer = writer
        self._kept = kept
        self._input = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._input += data
        end = self._input.find(b"\r\n\r\n")
        if end < 0:
            return
        method, path, _ = self._input[:end].split(b" ", 2)
        if method == b"GET":
            self._input = b""
            body = self._kept[path]
            self.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return
        size = int(self._input[:end].lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(self._input) < end + 4 + size:
            return
        body = self._kept[path] = self._input[end + 4 : end + 4 + size]
        self._input = b""
        self._writer.put((path, body, self))

    def answer(self, data: bytes) -> None:
        self._transport.write(data)


async def _serve(path: str) -> None:
    loop = asyncio.get_running_loop()
    writer = _Writer(path, loop)
    kept: dict[bytes, bytes] = {}
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server = await loop.create_server(lambda: _Connection(writer, kept), sock=listener)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(sys.argv[1]))


if __name__ == "__main__":
    main()
