"""A forgotten text goes from copies that are there already, and nothing else moves."""

import json
from hashlib import sha256
from pathlib import Path

from crystal_core.cutting.messages import split_message
from crystal_node.derive.sessions.forgetting import forget_in, texts_in
from crystal_node.derive.sessions.layout import HEAD_NAME
from tests.node.derive.sessions.machines import Machine, sync
from tests.node.derive.sessions.support import SESSION
from tests.node.derive.sessions.test_writer import said, turns

WORDS = 'the marmot\'s name is "Bodo" — he said'


def _mark() -> bytes:
    [piece] = split_message(WORDS)
    return sha256(piece.encode()).digest()


def _forget(machine: Machine, forgets: int = 1) -> int:
    changed = 0
    for head in machine.copies.of("claude-code", SESSION):
        lost = {_mark()} & texts_in(machine.copies, head, machine.adapter).keys()
        changed += forget_in(machine.copies, head, machine.adapter, lost, forgets)
    return changed


def test_a_forgotten_text_is_blanked_in_every_file_of_a_copy(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    result = one.slug / SESSION / "tool-results" / "out.txt"
    result.parent.mkdir(parents=True)
    result.write_text(f"before {WORDS} after")
    tail = json.dumps({"type": "last-prompt", "lastPrompt": WORDS}).encode() + b"\n"
    one.says(turns(0, 2) + said(2, WORDS) + tail)
    one.copy()
    before = one.tip()
    assert b"Bodo" in before
    assert _forget(one) == 1
    after = one.tip()
    assert b"Bodo" not in after
    assert len(after) == len(before)
    assert after[: len(turns(0, 2))] == turns(0, 2)
    assert [json.loads(line).get("uuid") for line in after.splitlines()] == ["u-0", "u-1", "u-2", None]
    [head] = one.copies.heads()
    assert b"Bodo" not in b"".join(one.copies.read(head, "tool-results/out.txt"))
    assert (head.last_words, head.forgotten) == ("[forgotten]", 1)
    assert "Bodo" not in (head.place.folder(one.root) / HEAD_NAME).read_text()
    named = {segment.file_name for stream in head.streams for segment in stream.segments}
    assert {path.name for path in one.root.rglob("*.zst")} == named, "what was superseded is gone at once"
    assert _forget(one) == 0


def test_a_session_goes_on_after_a_forget(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    one.says(turns(0, 2) + said(2, WORDS))
    one.copy()
    _forget(one)
    blanked = one.tip()
    one.says(turns(3, 5))
    one.copy(hides={_mark()}.intersection)
    [head] = one.copies.heads()
    assert one.tip() == blanked + turns(3, 5)
    assert (head.number, head.forgotten) == (1, 1)


def test_copies_that_stand_on_each_other_agree_again_once_both_are_rewritten(tmp_path: Path) -> None:
    one, two = Machine(tmp_path, "a"), Machine(tmp_path, "b")
    one.says(turns(0, 2) + said(2, WORDS))
    one.copy()
    sync(one, two)
    two.transcript.write_bytes(two.tip())
    two.says(turns(3, 5) + said(5, f"it wrote: {WORDS}"))
    two.copy()
    sync(one, two)
    for head in sorted(one.copies.of("claude-code", SESSION), key=lambda each: -each.main.bytes):
        lost = {_mark()} & texts_in(one.copies, head, one.adapter).keys()
        forget_in(one.copies, head, one.adapter, lost, 1)
    assert len(one.streams()) == 1
    assert b"Bodo" not in one.tip()
    assert len(one.tip()) == len(two.transcript.read_bytes())


def _forget_own(machine: Machine) -> None:
    for head in machine.copies.of("claude-code", SESSION):
        if head.device == machine.device:
            lost = {_mark()} & texts_in(machine.copies, head, machine.adapter).keys()
            forget_in(machine.copies, head, machine.adapter, lost, 1)


def test_a_copy_follows_a_base_that_was_rewritten_before_it(tmp_path: Path) -> None:
    for number, words in enumerate((WORDS, "nothing to forget")):
        one, two = Machine(tmp_path / str(number), "a"), Machine(tmp_path / str(number), "b")
        one.says(turns(0, 2) + said(2, WORDS))
        one.copy()
        sync(one, two)
        two.transcript.write_bytes(two.tip())
        two.says(turns(3, 5) + said(5, words))
        two.copy()
        sync(one, two)
        _forget_own(one)
        sync(one, two)
        _forget_own(two)
        sync(one, two)
        assert len(one.streams()) == 1
        assert b"Bodo" not in one.tip()
        assert len(one.tip()) == len(two.transcript.read_bytes())
