"""A tool that writes a message again keeps its first time: words of a private span are not recorded by that door either."""

import json
from pathlib import Path

from tests.support.machine import Machine, Vault

PUBLIC = "The north gate opens at seven."
SECRET = "The vicar's diagnosis came back."
LATER = "The south gate opens at eight."
_MESSAGE = "0f9d3c52-6f43-4a34-8a4e-2d8f0c6f7a11"


def _session(machine: Machine) -> Path:
    path = machine.root / ".gemini" / "tmp" / "harbour" / "chats" / "session-2026-01-05T09-00-aaaa.jsonl"
    path.parent.mkdir(parents=True)
    _write(path, {"sessionId": "aaaa", "projectHash": "b" * 64, "startTime": "2026-01-05T09:00:00.000Z"})
    return path


def _write(path: Path, record: dict[str, object]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def _said(text: str, message: str = _MESSAGE, moment: str = "2026-01-05T09:01:00.000Z") -> dict[str, object]:
    return {"id": message, "timestamp": moment, "type": "user", "content": text}


def test_private_words_under_an_older_time_are_not_recorded_when_they_are_written_again(vault: Vault) -> None:
    core = vault.core
    path = _session(core)
    _write(path, _said(PUBLIC))
    core.call("capture")
    core.call("private", "on")
    _write(path, _said(f"{PUBLIC} {SECRET}"))
    core.call("private", "off")
    _write(path, {"$set": {"messages": [_said(f"{PUBLIC} {SECRET}")]}})
    _write(path, _said(f"{PUBLIC} {SECRET} Tokens counted."))
    _write(path, _said(LATER, "1f9d3c52-6f43-4a34-8a4e-2d8f0c6f7a12", "2099-01-05T09:02:00.000Z"))
    core.call("capture")
    core.call("backfill", "--yes")
    for words in (SECRET, PUBLIC, LATER):
        found = core.found(words)
        assert not any(SECRET in text for text in found), words
    assert PUBLIC in core.found(PUBLIC)
    assert LATER in core.found(LATER)
