"""The built-in embedder in a process of its own. A background service starts it when it needs vectors, and ends it when idle.

::

    service ── standard input:  Opening, then StoredRequest or QueryRequest, one at a time ──► worker
            ◄─ standard output: StoredVectors, QueryVector or Failed, one for each ───────────

A frame is its length (four bytes, big-endian) and a msgpack document.

Rules:

- Its owner starts it with `crystal_core.embed.session.PROCESS_ENVIRONMENT`.
- The worker has no state and may be killed at any time. It ends when its standard input ends, even during a request, so it
  outlives no service.
- It ignores the signals that stop a service and all processes of its group: requests made before are still answered.
- It makes vectors of the model that the service named at the beginning, or none: an installation may change while a service
  runs.
- Texts are sent as bytes, unpaired surrogates included, so the vectors are the same as if the texts stayed in one process.
"""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import IO

import msgspec

from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.embed.port import EmbeddingError, ModelDamaged

FRAME_BYTES_MAX = 64 * 1024 * 1024
_HEAD_BYTES = 4
_CHARACTERS = "surrogatepass"


class Opening(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first frame. ``identity``: the expected model. ``threads``: of the model; None: its own choice. ``directory``: the
    model's files, "" for the shipped ones."""

    identity: str
    threads: int | None
    directory: str


class StoredRequest(msgspec.Struct, frozen=True, tag="texts", forbid_unknown_fields=True):
    """Asks for the stored form of the texts' vectors."""

    texts: list[bytes]


class QueryRequest(msgspec.Struct, frozen=True, tag="query", forbid_unknown_fields=True):
    """Asks for a query's vector."""

    text: bytes


class StoredVectors(msgspec.Struct, frozen=True, tag="vectors", forbid_unknown_fields=True):
    """For each text, its windows' vectors in their stored form."""

    texts: list[list[bytes]]


class QueryVector(msgspec.Struct, frozen=True, tag="query", forbid_unknown_fields=True):
    """A query's vector: float32 numbers, little-endian."""

    vector: bytes


class Failed(msgspec.Struct, frozen=True, tag="failed", forbid_unknown_fields=True):
    """An EmbeddingError. ``damaged``: whether it is ModelDamaged. ``hint``: "" for the hint of its class."""

    message: str
    hint: str
    damaged: bool


EmbeddingRequest = StoredRequest | QueryRequest
EmbeddingReply = StoredVectors | QueryVector | Failed

_opening = msgspec.msgpack.Decoder(Opening)
_requests = msgspec.msgpack.Decoder(EmbeddingRequest)


def send(file: IO[bytes], message: msgspec.Struct) -> None:
    """Writes one frame. Raises ValueError for a message of more than FRAME_BYTES_MAX, OSError if the pipe is closed."""
    data = msgspec.msgpack.encode(message)
    if len(data) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(data):,} bytes is too long")
    file.write(len(data).to_bytes(_HEAD_BYTES, "big"))
    file.write(data)
    file.flush()


def receive(file: IO[bytes]) -> bytes | None:
    """The next frame; None if the file ends before or within it. Raises ValueError for one of more than FRAME_BYTES_MAX."""
    head = file.read(_HEAD_BYTES)
    if len(head) < _HEAD_BYTES:
        return None
    length = int.from_bytes(head, "big")
    if length > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {length:,} bytes is too long")
    data = file.read(length)
    return data if len(data) == length else None


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", _CHARACTERS)


def answer(embedder: BuiltinEmbedder, identity: str, request: EmbeddingRequest) -> EmbeddingReply:
    """The embedder's reply to one request. ``identity``: the expected model. Embedding errors become Failed."""
    try:
        if embedder.identity != identity:
            return Failed(
                f"another embedding model is installed than when the service started: {embedder.identity}",
                "Restart the service: `crystal agent stop`, `crystal agent start`. Until then, search works by keyword",
                damaged=False,
            )
        if isinstance(request, QueryRequest):
            vector = embedder.embed_query(request.text.decode("utf-8", _CHARACTERS))
            return QueryVector(vector.astype("<f4").tobytes())
        return StoredVectors(
            embedder.embed_windows([text.decode("utf-8", _CHARACTERS) for text in request.texts])
        )
    except EmbeddingError as error:
        return Failed(str(error), error.hint, isinstance(error, ModelDamaged))


def run(next_frame: Callable[[], bytes | None], replies: IO[bytes]) -> None:
    """Answers until the frames end. Raises OSError if nobody reads the replies, ValueError for a frame that is no request."""
    first = next_frame()
    if first is None:
        return
    opening = _opening.decode(first)
    directory = Path(opening.directory) if opening.directory else None
    with BuiltinEmbedder(threads=opening.threads, directory=directory) as embedder:
        while (data := next_frame()) is not None:
            send(replies, answer(embedder, opening.identity, _requests.decode(data)))


def _read(requests: IO[bytes], frames: "Queue[bytes]") -> None:
    """Ends the process when its input ends, even during a request: nobody is left to read the answer."""
    try:
        while (data := receive(requests)) is not None:
            frames.put(data)
    finally:
        os._exit(0)


def main() -> None:
    """The worker's process."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):  # some systems lack the last two
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, signal.SIG_IGN)
    # Copies of the descriptors: an interpreter that ends by an error needs sys.stdin's lock, which the thread would hold.
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # so that no library prints into the replies
    os.close(nowhere)
    frames = Queue[bytes](1)
    threading.Thread(target=_read, args=(requests, frames), name="requests", daemon=True).start()
    with suppress(BrokenPipeError):  # the service was killed
        run(frames.get, replies)
    os._exit(0)  # nothing is left to be written


if __name__ == "__main__":
    main()
