"""The HTTP server of the scripted model, on the loopback."""

import contextlib
import gzip
import json
import re
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import zstandard

from tests.support.scripted_model import anthropic, gemini, openai
from tests.support.scripted_model.script import Asked, Reply, Script
from tests.support.serving import Quiet, serving

_GEMINI = re.compile(r"/v1(?:beta|alpha)?/models/(?P<model>[^/:]+):(?P<verb>\w+)")
BODY_BYTES_MAX = 256 * 1024 * 1024


@dataclass
class ScriptedModel:
    """The server, while it runs."""

    url: str
    script: Script = field(default_factory=Script)


@contextlib.contextmanager
def scripted_model() -> Generator[ScriptedModel]:
    """Run one on a free port of this machine."""
    stopping = threading.Event()

    class Handler(_Handler):
        stop = stopping

    with serving(Handler) as url:
        Handler.state = ScriptedModel(url)
        try:
            yield Handler.state
        finally:
            stopping.set()


@dataclass(frozen=True, slots=True)
class _Answering:
    """How one request is answered: in one piece, or as events."""

    asked: Asked
    whole: Callable[[Reply], dict[str, Any]]
    streamed: Callable[[Reply], Iterator[dict[str, Any]]]
    streams: bool
    named: bool = False
    """Whether an event's type comes before its data."""
    last: str = ""


class _Handler(Quiet):
    state: ScriptedModel
    stop: threading.Event

    def do_GET(self) -> None:  # noqa: N802  (its name in the base class)
        if self.path.partition("?")[0].endswith("/models"):
            names = ["scripted"]
            self._send({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})
        else:
            self._unknown()

    def do_HEAD(self) -> None:  # noqa: N802  (its name in the base class)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:  # noqa: N802  (its name in the base class)
        data = self._decoded()
        body: dict[str, Any] = json.loads(data) if data.startswith(b"{") else {}
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._send({"input_tokens": 100})
        elif path.endswith(":countTokens"):
            self._send({"totalTokens": 100})
        elif (how := _answering(path, body)) is None:
            self._unknown()
        else:
            self._answer(how)

    def _answer(self, how: _Answering) -> None:
        reply = self.state.script.reply(how.asked)
        if not how.streams:
            self._send(how.whole(reply))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        events = list(how.streamed(reply))
        for event in events[: len(events) // 2] if reply.stalls else events:
            head = f"event: {event['type']}\n" if how.named else ""
            self.wfile.write(f"{head}data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        if reply.stalls:
            self.stop.wait()
        elif how.last:
            self.wfile.write(how.last.encode())

    def _decoded(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            data = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.body()
        match self.headers.get("Content-Encoding", ""):
            case "gzip":
                return gzip.decompress(data)
            case "zstd":
                return zstandard.ZstdDecompressor().decompress(data, max_output_size=BODY_BYTES_MAX)
            case _:
                return data

    def _unknown(self) -> None:
        self.state.script.unknown.append(f"{self.command} {self.path}")
        self._send({"error": {"type": "not_found_error", "message": "no such path"}}, 404)

    def _send(self, document: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _answering(path: str, body: dict[str, Any]) -> _Answering | None:
    streams = bool(body.get("stream"))
    if path.endswith("/messages"):
        model = str(body["model"])
        return _Answering(
            anthropic.read(body),
            lambda reply: anthropic.whole(reply, model),
            lambda reply: anthropic.streamed(reply, model),
            streams,
            named=True,
        )
    if path.endswith("/responses"):
        return _Answering(
            openai.read_responses(body),
            lambda reply: openai.whole_response(reply, body),
            lambda reply: openai.streamed_response(reply, body),
            streams,
            named=True,
        )
    if path.endswith("/chat/completions"):
        return _Answering(
            openai.read_chat(body),
            lambda reply: openai.whole_chat(reply, body),
            lambda reply: openai.streamed_chat(reply, body),
            streams,
            last="data: [DONE]\n\n",
        )
    if (found := _GEMINI.search(path)) is not None:
        model = found["model"]
        return _Answering(
            gemini.read(body, model),
            lambda reply: gemini.whole(reply, model),
            lambda reply: gemini.streamed(reply, model),
            found["verb"].startswith("stream"),
        )
    return None
