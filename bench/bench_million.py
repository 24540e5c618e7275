"""A memory of a million messages, as processes: imported, sent, searched, on a new device, forgotten, collected.

The messages come in by `crystal import`, as ChatGPT exports conversations, each of some 300 characters. No vectors are made: of
a million messages that takes an hour, and what it costs is measured in the parts `embed` and `scale`; searches are by words.
The figures include the work of disk and relay: there are a Core, a second device, and a relay in a folder.
"""

import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.harness import ProcessFigures, Row, timed_process, value_at_most
from bench.memories import sentences
from crystal_node.surfaces.demo.machines import DemoDevice, DemoRelay, command_of

MB = 1_000_000
MESSAGES = 1_000_000
MESSAGES_A_CONVERSATION = 100
MESSAGE_CHARS = 300
MEMORY_MB_MAX = 300.0
_SEARCHES = 7
_BEGAN = 1_700_000_000


def run(quick: bool) -> list[Row]:
    size = 5_000 if quick else MESSAGES
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as name:
        folder = Path(name)
        relay = DemoRelay(folder / "relay")
        relay.start()
        try:
            return _figures(folder, relay, size)
        finally:
            relay.stop()


def _figures(folder: Path, relay: DemoRelay, size: int) -> list[Row]:
    core, node = _Device(folder / "core"), _Device(folder / "node")
    core.run("init", "--role", "core", "--relay", relay.url, "--yes", token=relay.token)
    core.run("config", "set", "embedding_provider", "none")
    chats = folder / "conversations.json"
    _write(chats, size)
    imported = core.timed("import", str(chats))
    chats.unlink()
    sent = core.timed("sync")
    stored = relay.stored_bytes()
    code = str(core.run("pair", "--offline", "--yes")["code"])
    node.run("pair", "--code", "-", "--relay", relay.url, typed=code)
    node.run("config", "set", "embedding_provider", "none")
    core.run("sync")
    arrived = node.timed("sync")
    known = node.run("status")["memory"]["texts"]
    assert known >= size, f"{known} of {size} messages arrived"
    searched = [node.timed("search", "--fast", _needle(at * 100 + 7)) for at in range(_SEARCHES)]
    found = json.loads(searched[-1].output)["results"]
    [hit] = [each for each in found if _needle((_SEARCHES - 1) * 100 + 7) in each["text"]]
    started = time.perf_counter()
    core.run("forget", hit["id"], "--yes")
    here = time.perf_counter() - started
    core.timed("sync")
    node.timed("sync")
    everywhere = time.perf_counter() - started
    again = node.run("search", "--fast", _needle((_SEARCHES - 1) * 100 + 7))["results"]
    assert not [each for each in again if each["id"] == hit["id"]], "what was forgotten was found"
    collected = core.timed("prune", "--now", "--yes")
    messages = f"{size:,} messages"
    return [
        _row(f"{messages} imported", imported),
        _memory("importing them", imported),
        _row(
            "sending them: until they are ordered and in the mirror",
            sent,
            f"{stored / MB:,.0f} MB at the relay",
        ),
        _memory("sending them", sent),
        _row("a new device: until it has them all", arrived),
        _memory("a new device", arrived),
        Row(
            name="a search by words, cold, on that device: processor time",
            value=1000 * median(each.processor for each in searched),
            unit="ms",
        ),
        Row(name="forgetting one: on the Core", value=here, unit="s"),
        Row(name="forgetting one: until it is gone from the other device", value=everywhere, unit="s"),
        _row("garbage collection (`crystal prune --now`)", collected),
        _memory("garbage collection", collected),
    ]


class _Device(DemoDevice):
    def timed(self, *arguments: str) -> ProcessFigures:
        return timed_process(command_of(*arguments), self.environment())


def _row(name: str, took: ProcessFigures, note: str = "") -> Row:
    spent = f"{took.processor:,.0f} s of processor time"
    return Row(name=name, value=took.seconds, unit="s", note=f"{spent}; {note}" if note else spent)


def _memory(name: str, took: ProcessFigures) -> Row:
    return Row(
        name=f"{name}: peak of resident memory",
        value=took.peak / MB,
        unit="MB",
        target=value_at_most(MEMORY_MB_MAX),
    )


def _needle(number: int) -> str:
    return f"ref{number * 7919:x}q"


def _write(path: Path, size: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number, conversation in enumerate(_conversations(size)):
            file.write(("[" if number == 0 else ",\n") + json.dumps(conversation))
        file.write("]\n")


def _conversations(size: int) -> Iterator[dict[str, object]]:
    rng, said = random.Random(11), sentences()
    for first in range(0, size, MESSAGES_A_CONVERSATION):
        nodes: dict[str, object] = {}
        for number in range(first, min(first + MESSAGES_A_CONVERSATION, size)):
            text = f"Note {number}, {_needle(number)}."
            while len(text) < MESSAGE_CHARS:
                text = f"{text} {rng.choice(said)}"
            nodes[f"m{number}"] = {
                "id": f"m{number}",
                "message": {
                    "id": f"m{number}",
                    "author": {"role": ("user", "assistant")[number % 2]},
                    "create_time": _BEGAN + number * 30,
                    "content": {"content_type": "text", "parts": [text[:MESSAGE_CHARS]]},
                },
            }
        yield {
            "id": f"c{first}",
            "conversation_id": f"c{first}",
            "title": f"Conversation {first}",
            "create_time": _BEGAN + first * 30,
            "mapping": nodes,
        }
