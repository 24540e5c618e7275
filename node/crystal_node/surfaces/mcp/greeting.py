"""The first answers of ``crystal mcp``, before the SDK is loaded.

Loading the SDK takes most of a second, and an agent that works for only one turn does not wait for its tools that long. What
a client asks first is fixed: ``initialize``, ``server/discover``, and the lists of tools, prompts, resources and templates,
for all of which Claude Code waits before it shows its model the tools. ``greeting.json`` has the SDK's own answers, for each
version of the protocol (``scripts.make_mcp_greeting``; a test compares them). They are given at once, while the SDK is
loaded. It is told what the client says, answers these requests, too, and its answers to them are dropped::

    client ──lines──► Greeter ──the same lines──► SDK
           ◄─answers─         ◄──────answers──────      less those that were given

Of resources the fixed ones are given, as if these were all: Claude Code would ask for the next page, which needs the memory,
and wait for it. Who lists later gets the texts, too.

The SDK is not told of a ``server/discover`` that was answered. Its first message decides for good which kind of protocol it
speaks, and a client that hears no answer in time begins once more with ``initialize``: every call would be refused then.

Standard output is the protocol's alone: what else is printed goes to standard error. Loads the standard library only.
"""

import json
import os
import queue
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

FILE = Path(__file__).with_name("greeting.json")
LINES_MAX = 64
"""Lines that wait for the server; a client that sends more waits, too."""
_INITIALIZE, _DISCOVER, _TOOLS = "initialize", "server/discover", "tools/list"
LISTS = ("prompts/list", "resources/list", "resources/templates/list")
"""The lists that are the same for all sets of tools."""
_ENVELOPE = "io.modelcontextprotocol/"
"""Before the names of what each request says of the client, in versions of the protocol without a handshake."""


class Greeter:
    """Stands between the client and the server of one process. ``readline``, ``write`` and ``flush`` are the server's side."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO, *, read_only: bool) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._set = "read_only" if read_only else "all"
        self._lines: queue.Queue[str] = queue.Queue(LINES_MAX)
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {}
        self._version = ""
        self._given: set[str] = set()
        self._greets = True
        self._ended = False
        self._greeted = threading.Event()

    @classmethod
    def of_process(cls, *, read_only: bool) -> "Greeter":
        """Takes standard input and output for the protocol."""
        incoming, outgoing = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        sys.stdout.flush()
        os.dup2(2, 1)
        return cls(os.fdopen(incoming, "rb"), os.fdopen(outgoing, "wb"), read_only=read_only)

    def start(self) -> None:
        """Listens from now on. Returns when the client's first message was answered, or is the server's to answer."""
        threading.Thread(target=self._listen, daemon=True).start()
        self._greeted.wait()

    def hand_over(self) -> None:
        """The server is there: it answers what comes from now on."""
        self._greets = False

    def readline(self) -> str:
        """The client's next line for the server; "" at the end."""
        line = "" if self._ended else self._lines.get()
        self._ended = not line
        return line

    def write(self, text: str) -> int:
        """A line of the server's for the client, unless the client has that answer."""
        if self._given:
            said = json.loads(text)
            asked = json.dumps(said.get("id"))
            if asked in self._given and ("result" in said or "error" in said):
                self._given.discard(asked)
                return len(text)
        self._send(text.encode())
        return len(text)

    def flush(self) -> None:
        """Nothing waits."""

    def _listen(self) -> None:
        with suppress(OSError):  # the client is gone, and the server is told of its end
            for line in self._incoming:
                if not (self._greets and self._greet(line)):
                    self._lines.put(line.decode("utf-8", "replace"))
                self._greeted.set()
        self._lines.put("")
        self._greeted.set()

    def _greet(self, line: bytes) -> bool:
        """Answers a line, if it is one of the first requests. Returns whether the server is not to hear of it."""
        try:
            asked = _object(json.loads(line))
        except (ValueError, RecursionError):
            return False  # the server says what is wrong with it
        if not isinstance(asked.get("id"), str | int):
            return False
        method = asked.get("method")
        answer = self._answer(method, asked.get("params"))
        if answer is None:
            return False
        said = {"jsonrpc": "2.0", "id": asked["id"], **answer}
        if method != _DISCOVER:
            self._given.add(json.dumps(asked["id"]))
        self._send(json.dumps(said, separators=(",", ":")).encode() + b"\n")
        return method == _DISCOVER

    def _answer(self, method: object, params: object) -> dict[str, Any] | None:
        """The fixed answer: a result, or an error; None if there is none."""
        given = _object(params)
        if method == _INITIALIZE and not self._version:
            version = given.get("protocolVersion")
            # What is malformed in the rest is the server's to refuse.
            if not (
                isinstance(given.get("clientInfo"), dict) and isinstance(given.get("capabilities"), dict)
            ):
                return None
            if (known := self._of_version(version, _INITIALIZE)) is not None:
                self._version = str(version)
                return {"result": known}
        meta = _object(given.get("_meta"))
        version = meta.get(f"{_ENVELOPE}protocolVersion")
        sound = isinstance(version, str) and f"{_ENVELOPE}clientCapabilities" in meta
        if method == _DISCOVER and sound:
            found = self._of_version(version, _DISCOVER)
            if found is None:
                error = self._known["unsupported"]
                return {"error": error | {"data": error["data"] | {"requested": version}}}
            return {"result": found}
        if (method == _TOOLS or method in LISTS) and not given.get("cursor"):
            own = version if sound and not self._version else self._version
            name = f"{_TOOLS} {self._set}" if method == _TOOLS else str(method)
            listed = self._of_version(own, name) if own else None
            return None if listed is None else {"result": listed}
        return None

    def _of_version(self, version: object, name: str) -> dict[str, Any] | None:
        """An answer, put together from its parts, with this distribution's version."""
        if not self._known:
            self._known = json.loads(FILE.read_bytes())
        parts = self._known["versions"].get(version, {}).get(name) if isinstance(version, str) else None
        if parts is None:
            return None
        answer: dict[str, Any] = {}
        for part in parts:
            answer |= self._known["answers"][part]
        for about, info in ((answer, "serverInfo"), (answer.get("_meta", {}), f"{_ENVELOPE}serverInfo")):
            if info in about:
                from importlib.metadata import version as version_of

                about[info]["version"] = version_of("memory-crystal")
        return answer

    def _send(self, data: bytes) -> None:
        with self._lock:
            self._outgoing.write(data)
            self._outgoing.flush()


def _object(value: object) -> dict[str, Any]:
    """The object, or an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
