"""Rollouts that Codex has compressed: copied like plain ones, once, and put back as plain ones."""

import json
import signal
from collections.abc import Callable

import pytest
import zstandard

from crystal_crypto.compression import decompress_frames
from crystal_crypto.errors import Malformed
from crystal_node.derive.sessions.copies import SessionCopies
from crystal_node.derive.sessions.layout import Head
from tests.support.machine import Machine, Vault
from tests.support.session_copies import written_long_ago
from tests.support.watchers import until

ID = "0b6e8476-1f2f-4087-b614-062a5a99d83f"
OTHER = "0b6e8476-1f2f-4087-b614-062a5a99d840"
NAME = "rollout-2026-03-02T13-24-15-{}.jsonl"


def rollout(session: str, *texts: str) -> bytes:
    records: list[dict[str, object]] = [
        {
            "type": "session_meta",
            "payload": {"id": session, "cwd": "/home/someone/work", "cli_version": "0.169.0"},
        }
    ]
    records.extend(
        {
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
        }
        for text in texts
    )
    return b"".join(
        json.dumps({"timestamp": "2026-03-02T13:24:15.000Z", **record}).encode() + b"\n" for record in records
    )


def heads(machine: Machine, session: str = ID) -> list[Head]:
    return SessionCopies(machine.home).of("codex", session)


def bytes_of(machine: Machine, session: str = ID) -> bytes:
    return b"".join(SessionCopies(machine.home).read(heads(machine, session)[0]))


def served_until(machine: Machine, what: Callable[[], bool], said: str = "") -> str:
    """The background service runs until then. Returns what it said."""
    agent = machine.start("agent", "run")
    try:
        until(what, "the copy", 60)
    finally:
        agent.send_signal(signal.SIGTERM)
        out, err = agent.communicate(timeout=60)
    return str(out) + str(err)


@pytest.mark.parametrize("where", ["sessions/2026/03/02", "archived_sessions"])
def test_one_that_was_compressed_before_is_copied_and_put_back_plain(vault: Vault, where: str) -> None:
    node = vault.add()
    data = rollout(ID, "Where does the heron nest?")
    file = node.root / ".codex" / where / f"{NAME.format(ID)}.zst"
    file.parent.mkdir(parents=True)
    half = len(data) // 2
    file.write_bytes(zstandard.compress(data[:half]) + zstandard.compress(data[half:]))
    written_long_ago(file)
    damaged = file.with_name(f"{NAME.format(OTHER)}.zst")
    damaged.write_bytes(zstandard.compress(data)[:-5])
    served_until(node, lambda: bool(heads(node)))
    assert bytes_of(node) == data
    (head,) = heads(node)
    assert head.native == f"~/.codex/{where}/{NAME.format(ID)}"
    assert head.updated_at == 1_700_000_000_000, "it is as old as Codex's file"
    assert not heads(node, OTHER)
    assert not (node.home / "state" / "unpacked").exists()
    file.unlink()
    node.call("sessions", "restore", "--all", "--to", str(node.root / "back"))
    (restored,) = (node.root / "back").rglob("*.jsonl")
    assert restored.read_bytes() == data
    assert (
        restored.relative_to(node.root / "back").as_posix() == f"codex/sessions/2026/03/02/{NAME.format(ID)}"
    )


def test_one_that_was_copied_plain_is_not_copied_again(vault: Vault) -> None:
    node = vault.add()
    data = rollout(ID, "Where does the heron nest?", "And in winter?")
    file = node.root / ".codex" / "sessions/2026/03/02" / NAME.format(ID)
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    served_until(node, lambda: bool(heads(node)) and heads(node)[0].main.bytes == len(data))
    before = heads(node)
    file.with_name(f"{file.name}.zst").write_bytes(zstandard.compress(data))
    file.unlink()
    later = file.with_name(f"{NAME.format(OTHER)}.zst")
    later.write_bytes(zstandard.compress(rollout(OTHER, "Another one.")))
    written_long_ago(later)  # looked at last
    served_until(node, lambda: bool(heads(node, OTHER)))
    assert heads(node) == before


def test_frames_are_unpacked_to_the_last_and_no_further_than_the_limit() -> None:
    two = zstandard.compress(b"one ") + zstandard.compress(b"two")
    assert decompress_frames(two, 7) == b"one two"
    assert decompress_frames(b"", 7) == b""
    for data, limit in (
        (two, 6),
        (two[:-1], 7),
        (two + b"rest", 7),
        (zstandard.compress(bytes(10**6)), 1000),
    ):
        with pytest.raises(Malformed):
            decompress_frames(data, limit)
