"""Copies of a session as it grows, moves between machines, and is rewritten by its tool."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crystal_core.cutting.messages import split_message
from crystal_node.derive.sessions.layout import HEAD_NAME, Head
from crystal_node.derive.sessions.segments import MERGE_COUNT
from crystal_node.device.privacy import Privacy
from tests.node.capture.redaction_cases import TOKENS
from tests.node.derive.sessions.machines import Machine, sync
from tests.node.derive.sessions.support import SESSION


def said(number: int, text: str = "", at: str = "2026-11-22T13:00:00Z", cwd: str = "/home/ada/work") -> bytes:
    record = {
        "type": "user" if number % 2 == 0 else "assistant",
        "uuid": f"u-{number}",
        "sessionId": SESSION,
        "timestamp": at,
        "cwd": cwd,
        "version": "2.1.330",
        "message": {"role": "user", "content": text or f"words {number}", "model": "fake-model"},
    }
    return json.dumps(record).encode() + b"\n"


def turns(first: int, end: int, text: str = "") -> bytes:
    return b"".join(said(number, text and f"{text} {number}") for number in range(first, end))


def test_a_copy_is_equal_to_the_last_byte_and_grows_with_its_file(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    one.says(turns(0, 5))
    assert one.copy() == len(turns(0, 5))
    one.says(turns(5, 7))
    assert one.copy() == len(turns(5, 7))
    assert one.copy() == 0
    assert one.tip() == one.transcript.read_bytes()
    [head] = one.copies.heads()
    assert (head.title, head.last_words, head.model, head.tool_version) == (
        "words 0", "words 6", "fake-model", "2.1.330",
    )  # fmt: skip
    assert (head.native, head.lines) == (f"~/.claude/projects/-home-ada/{SESSION}.jsonl", 7)
    assert len(head.main.segments) == 2


def test_an_unended_line_waits_until_it_is_whole(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    one.says(turns(0, 2) + said(2)[:-20])
    assert one.copy(quiet=False) == len(turns(0, 2))
    one.says(said(2)[-20:])
    one.copy()
    assert one.tip() == turns(0, 3)


def test_a_last_line_that_never_got_its_end_is_copied_once_it_is_quiet(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    one.says(turns(0, 2) + said(2)[:-1])
    one.copy()
    assert one.tip() == turns(0, 3)
    one.says(b"\n" + said(3))
    one.copy()
    assert one.tip() == turns(0, 4)


def test_a_session_continued_elsewhere_is_one_session_on_both(tmp_path: Path) -> None:
    one, two = Machine(tmp_path, "a"), Machine(tmp_path, "b")
    one.says(turns(0, 5))
    one.copy()
    sync(one, two)
    for start in (5, 9, 13):
        there, here = (two, one) if start != 9 else (one, two)
        there.transcript.write_bytes(there.tip())
        there.says(turns(start, start + 4))
        there.copy()
        sync(one, two)
        assert one.streams() == two.streams() == [turns(0, start + 4)]
        assert here.copies.branches("claude-code", SESSION)[0].tip.device == there.device
    stored = sum(seg.end - seg.first for head in one.copies.heads() for seg in head.main.segments)
    assert stored == len(turns(0, 17)), "each byte is stored once"


def test_what_was_redacted_is_recognised_when_it_comes_back(tmp_path: Path) -> None:
    one, two = Machine(tmp_path, "a"), Machine(tmp_path, "b")
    token = TOKENS[0][0]
    one.says(turns(0, 2) + said(2, f"use {token}"))
    one.copy()
    sync(one, two)
    assert token.encode() not in two.tip()
    two.transcript.write_bytes(two.tip())
    two.says(turns(3, 5))
    two.copy()
    sync(one, two)
    tip = one.tip()
    one.says(tip[len(one.copies.of("claude-code", SESSION)[0].main.segments and tip) :] + turns(3, 5))
    one.copy()
    sync(one, two)
    assert len(one.streams()) == 1
    assert one.tip() == two.tip()
    assert token.encode() in one.transcript.read_bytes()


def test_two_machines_that_went_different_ways_are_a_fork_and_nothing_is_lost(tmp_path: Path) -> None:
    one, two = Machine(tmp_path, "a"), Machine(tmp_path, "b")
    one.says(turns(0, 5))
    one.copy()
    sync(one, two)
    two.transcript.write_bytes(two.tip())
    one.says(turns(5, 8, "here"))
    two.says(turns(5, 7, "there"))
    one.copy()
    two.copy()
    sync(one, two)
    assert sorted(one.streams()) == sorted(two.streams())
    assert sorted(one.streams()) == sorted(
        [turns(0, 5) + turns(5, 8, "here"), turns(0, 5) + turns(5, 7, "there")]
    )


def test_a_file_that_its_tool_rewrote_is_another_stream_and_the_old_one_stays(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    one.says(turns(0, 8))
    one.copy()
    one.transcript.write_bytes(turns(0, 3, "compacted") + turns(6, 8))
    one.copy()
    assert sorted(one.streams()) == sorted([turns(0, 8), turns(0, 3, "compacted") + turns(6, 8)])
    one.transcript.write_bytes(turns(0, 3))
    one.copy()
    assert len(one.streams()) == 2, "a beginning is nothing new"


def test_a_lost_database_loses_and_doubles_nothing(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    one.says(turns(0, 8))
    one.copy()
    one.forget_cursors()
    one.says(turns(8, 9))
    one.copy()
    [head] = one.copies.heads()
    assert one.tip() == turns(0, 9)
    assert sum(seg.end - seg.first for seg in head.main.segments) == len(turns(0, 9))


def test_a_head_that_is_ahead_of_the_cursor_is_believed(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    one.says(turns(0, 4))
    one.copy()
    before = one.database.cursor(one.transcript)
    one.says(turns(4, 8))
    one.copy()
    assert before is not None
    one.database.set_cursor(one.transcript, before)  # killed between the two
    one.says(turns(8, 9))
    one.copy()
    [head] = one.copies.heads()
    assert one.tip() == turns(0, 9)
    assert head.number == 1


@pytest.mark.parametrize("killed", [False, True], ids=["lost", "killed"])
def test_lines_beside_the_transcript_are_not_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    one = Machine(tmp_path, "a")
    one.says(turns(0, 2))
    agent = one.slug / SESSION / "subagents" / "agent-1.jsonl"
    agent.parent.mkdir(parents=True)
    agent.write_bytes(turns(0, 3, "sub"))
    one.copy()
    with agent.open("ab") as file:
        file.write(turns(3, 4, "sub"))
    if killed:
        put_head = one.writer._put_head  # pyright: ignore[reportPrivateUsage]

        def killed_behind(head: Head) -> None:
            put_head(head)
            raise InterruptedError

        with monkeypatch.context() as patched:
            patched.setattr(one.writer, "_put_head", killed_behind)
            with pytest.raises(InterruptedError):
                one.copy()
    else:
        one.forget_cursors()
    one.says(turns(2, 3))
    one.copy()
    [head] = one.copies.heads()
    assert b"".join(one.copies.read(head, "subagents/agent-1.jsonl")) == turns(0, 4, "sub")
    assert one.tip() == turns(0, 3)


def test_few_files_however_often_it_grows_and_few_large_ones_when_it_is_quiet(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    for number in range(150):
        one.says(said(number, "x" * 300))
        one.copy(quiet=False)
        [head] = one.copies.heads()
        assert len(head.main.segments) <= 3 * MERGE_COUNT
    [head] = one.copies.heads()
    folder = head.place.folder(one.root)
    sent = sum(path.stat().st_size for path in folder.glob("*.zst"))
    assert one.writer.settle(one.transcript)
    [head] = one.copies.heads()
    assert len(head.main.segments) == 1
    assert one.tip() == one.transcript.read_bytes()
    assert sent > head.packed
    assert head.packed <= 1.1 * len(zstandard.compress(one.tip(), 3))
    assert not one.writer.settle(one.transcript)


def test_files_beside_the_transcript_travel_with_it(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    one.says(turns(0, 2))
    beside = one.slug / SESSION
    (beside / "subagents").mkdir(parents=True)
    (beside / "tool-results").mkdir()
    agent, result = beside / "subagents" / "agent-1.jsonl", beside / "tool-results" / "out.txt"
    agent.write_bytes(turns(0, 3, "sub"))
    result.write_bytes(f"plain\n{TOKENS[0][0]}\nlast".encode())
    (beside / "link").symlink_to("/etc/passwd")
    one.copy()
    [head] = one.copies.heads()
    assert [stream.path for stream in head.side] == ["subagents/agent-1.jsonl", "tool-results/out.txt"]
    assert b"".join(one.copies.read(head, "subagents/agent-1.jsonl")) == turns(0, 3, "sub")
    assert (
        b"".join(one.copies.read(head, "tool-results/out.txt"))
        == f"plain\n[redacted:{TOKENS[0][1]}]\nlast".encode()
    )
    with agent.open("ab") as file:
        file.write(turns(3, 4, "sub"))
    result.write_bytes(b"another one")
    one.copy()
    [head] = one.copies.heads()
    assert b"".join(one.copies.read(head, "subagents/agent-1.jsonl")) == turns(0, 4, "sub")
    assert b"".join(one.copies.read(head, "tool-results/out.txt")) == b"another one"
    assert len(head.side[0].segments) == 2


def test_private_mode_and_excluded_projects_stay_out(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a", exact=True)
    one.says(said(0, at="2026-11-22T13:00:00Z"))
    one.says(said(1, "marmots", at="2026-11-22T14:30:00Z"))
    one.says(b'{"type":"last-prompt","lastPrompt":"marmots","sessionId":"x"}\n')
    one.says(said(2, at="2026-11-22T16:00:00Z"))
    hour = 3_600_000
    day = 1_795_305_600_000 + 0
    span = (day + 14 * hour, day + 15 * hour)
    assert one.copy(privacy=Privacy(since=1)) == 0
    one.copy(privacy=Privacy(spans=(span,)))
    assert b"marmots" not in one.tip()
    assert [json.loads(line)["type"] for line in one.tip().splitlines()] == [
        "user",
        "assistant",
        "last-prompt",
        "user",
    ]
    [head] = one.copies.heads()
    assert "marmots" not in (one.root / head.place.folder(one.root) / HEAD_NAME).read_text()
    two = Machine(tmp_path, "b")
    (two.person / ".crystalignore").write_text("secret/\n")
    (two.person / "secret").mkdir()
    two.says(said(0, cwd=str(two.person / "secret")))
    assert two.copy() == 0
    assert not list(two.copies.heads())


def test_nothing_is_copied_before_the_folder_is_known(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    one.says(b'{"type":"queue-operation","content":"marmots"}\n')
    assert one.copy(quiet=False) == 0
    one.says(said(0))
    assert one.copy(quiet=False) == len(one.transcript.read_bytes())


def test_an_old_file_does_not_bring_forgotten_words_back(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    [piece] = split_message("the marmot's name is Bodo")
    mark = sha256(piece.encode()).digest()
    one.says(said(0) + said(2, piece) + b'{"type":"last-prompt","lastPrompt":"the marmot\'s name is Bodo"}\n')
    one.copy(hides={mark}.intersection)
    assert b"Bodo" not in one.tip()
    assert len(one.tip()) == len(one.transcript.read_bytes())
    [head] = one.copies.heads()
    assert "Bodo" not in head.last_words
    one.forget_cursors()
    one.says(said(3))
    one.copy(hides={mark}.intersection)
    [head] = one.copies.heads()
    assert head.number == 1


@pytest.mark.parametrize("exact", [True, False])
def test_exact_bytes_are_a_choice(tmp_path: Path, exact: bool) -> None:
    one = Machine(tmp_path, "a", exact=exact)
    one.says(said(0, f"use {TOKENS[0][0]}"))
    one.copy()
    [head] = one.copies.heads()
    assert head.exact is exact
    assert (one.tip() == one.transcript.read_bytes()) is exact
    assert TOKENS[0][0] not in head.title


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "append",
                "append",
                "torn",
                "copy",
                "sync",
                "resume",
                "rewrite",
                "truncate",
                "lose",
                "settle",
                "crash",
            ]
        ),
        st.integers(0, 4),
        st.integers(1, 4),
    ),
    max_size=30,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.integers(2, 5), STEPS)
def test_no_complete_line_is_lost_and_no_beginning_is_told_as_a_fork(
    tmp_path_factory: pytest.TempPathFactory, count: int, steps: list[tuple[str, int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("machines")
    machines = [Machine(folder, "abcde"[number]) for number in range(count)]
    wrote: set[bytes] = set()
    number = 0
    for what, which, many in steps:
        one = machines[which % count]
        if what in ("append", "torn"):
            data = turns(number, number + many, f"by {one.device[0]}")
            number += many
            if one.transcript.exists() and not one.transcript.read_bytes().endswith(b"\n"):
                one.says(b"\n")
            one.says(data[:-9] if what == "torn" else data)
        elif what == "rewrite" and one.transcript.exists():
            lines = one.transcript.read_bytes().splitlines(keepends=True)
            one.transcript.write_bytes(b"".join(lines[many:]))
        elif what == "truncate" and one.transcript.exists():
            lines = one.transcript.read_bytes().splitlines(keepends=True)
            one.transcript.write_bytes(b"".join(lines[: len(lines) // 2]))
        elif what == "resume" and (tip := one.tip()):
            own = one.transcript.read_bytes() if one.transcript.exists() else b""
            if tip.startswith(own):
                one.transcript.write_bytes(tip)
        elif what == "lose":
            one.forget_cursors()
        elif what == "settle":
            one.writer.settle(one.transcript)
        elif what == "crash" and one.transcript.exists():
            before = one.database.cursor(one.transcript)
            one.copy()
            wrote |= _complete(one)
            if before is not None:
                one.database.set_cursor(one.transcript, before)
        elif what == "sync":
            sync(*machines)
        if what == "copy" and one.transcript.exists():
            one.copy()
            wrote |= _complete(one)
    for one in machines:
        if one.transcript.exists():
            one.copy()
            wrote |= _complete(one)
    sync(*machines)
    found = machines[0].streams()
    for other in machines[1:]:
        assert sorted(other.streams()) == sorted(found)
    for stream in wrote:
        assert any(each.startswith(stream) for each in found), "a copy was lost"
    for stream in found:
        assert stream in wrote, "nobody wrote this"
        assert [each for each in found if each.startswith(stream)] == [stream], (
            "a beginning was told as a fork"
        )


def _complete(machine: Machine) -> set[bytes]:
    data = machine.transcript.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    return {whole} if whole else set()


def test_another_file_under_the_name_is_copied_whole_although_the_head_is_ahead_of_the_cursor(
    tmp_path: Path,
) -> None:
    one = Machine(tmp_path, "a")
    one.says(turns(0, 5))
    one.copy()
    before = one.database.cursor(one.transcript)
    assert before is not None
    one.says(turns(5, 9))
    one.copy()
    one.database.set_cursor(one.transcript, before)  # as if it was killed before it was noted
    one.transcript.rename(one.transcript.with_suffix(".old"))
    one.says(turns(20, 22))
    one.copy()
    assert sorted(one.streams()) == sorted([turns(0, 9), turns(20, 22)])
