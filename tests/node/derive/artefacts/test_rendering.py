"""What transcripts, summaries and logs say, as pure functions of the pieces."""

import json
import os
import re
import tracemalloc
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_node.derive.artefacts.conversation import Conversation, ConversationPiece
from crystal_node.derive.artefacts.daily import DayLine, daily_log
from crystal_node.derive.artefacts.dates import day_of
from crystal_node.derive.artefacts.summaries import NAMES_MAX, Mentions, ModelSummary, extract, summary
from crystal_node.derive.artefacts.transcripts import transcript
from crystal_node.sync.files.artefacts import ArtefactForm, ArtefactState, look_at, sealed
from tests.core.builders import DEVICE, NOW
from tests.support.workbench import Workbench

ZONE = ZoneInfo("Europe/Berlin")
NAMES = {DEVICE: "laptop"}


def spoken(
    text: str, role: str = "user", at: int = NOW, message: str = "m", part: int = 0
) -> ConversationPiece:
    return ConversationPiece(
        sha256(text.encode()).digest(), text, role, at, message, part, "~/work", "", "codex", DEVICE
    )


def summed(*pieces: ConversationPiece, digest: ModelSummary | None = None) -> str:
    return summary("agent", "session", extract(pieces), zone=ZONE, names=NAMES, digest=digest).decode()


PIECES = st.lists(
    st.builds(
        spoken,
        st.text(min_size=1, max_size=80),
        st.sampled_from(["user", "assistant", "thinking", "subagent-user", "\u202eodd"]),
        st.integers(0, 2**53),
        st.text(max_size=5),
        st.integers(0, 3),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(PIECES, st.text(max_size=30))
def test_the_same_rows_give_the_same_bytes_and_anything_that_was_said_can_be_read_back(
    pieces: list[ConversationPiece], agent: str
) -> None:
    lines = list(transcript(agent, "s", pieces))
    assert lines == list(transcript(agent, "s", iter(pieces)))
    documents = [json.loads(line) for line in lines]
    assert [each["text"] for each in documents if each["type"] == "piece"] == [each.text for each in pieces]
    assert all(line.count(b"\n") == 1 for line in lines)
    assert summed(*pieces) == summed(*pieces)


def test_a_summary_without_a_model_is_an_extract_and_says_so() -> None:
    text = summed(
        spoken("Why does `src/relay/notify.py` wait?\nLook at it."),
        spoken("I think about it", "thinking", NOW + 1000, "n"),
        spoken("It waits for ./docs/a b.md. Run:\n```sh\nmake test\n```", "assistant", NOW + 3_600_000, "o"),
    )
    assert text.startswith("# Why does \\`src/relay/notify.py\\` wait? Look at it.\n")
    assert "without a language model" in text
    assert "- When: 2027-01-15 09:00 to 10:00 (Europe/Berlin)" in text
    assert "1 request, 1 answer, 1 thought" in text
    assert "- Device: laptop (" in text
    assert "\n    It waits for ./docs/a b.md. Run:\n" in text
    assert "    src/relay/notify.py" in text
    assert "    make test" in text


def test_a_models_words_are_marked_as_a_models_and_quoted() -> None:
    text = summed(spoken("x"), digest=ModelSummary("# It was fixed.\n<!-- done -->", "small-model"))
    assert "without a language model" not in text
    assert "## What small-model made of it\n\n> **It was fixed.**\n> &lt;!-- done -->\n" in text
    failed = summed(spoken("x"), digest=ModelSummary(failure="nobody answers"))
    assert "a language model was asked and gave nothing (nobody answers)" in failed


@pytest.mark.parametrize(
    "said",
    [
        "<!-- Made by Crystal",
        "# A heading",
        "\x1b[31mred",
        "a\r\nb\u2028c",
        "```\nopen fence",
        "\u202eabc",
        "![pixel](http://example.invalid/x.png)",
        "\\<img src=x>",
    ],
)
def test_what_was_said_is_shown_and_never_taken_for_anything_but_words(said: str) -> None:
    body = summed(
        ConversationPiece(b"i" * 32, said, said, NOW, "m", 0, said, said, said, DEVICE),
        spoken(said, message="n"),
        spoken(said, "assistant", message="o"),
    )
    after = body.split("## Last answer\n\n", 1)[1].split("\n\n", 1)[0]
    assert all(line.startswith("    ") for line in after.split("\n"))
    assert not any(char in body for char in "\x1b\r\u2028\u202e")
    ours = [line for line in body.split("\n") if not line.startswith("    ")]
    escaped = [re.sub(r"\\.", "", line) for line in ours]
    assert not any("<" in line or "![" in line or "](" in line for line in escaped)
    assert sum(line.startswith("#") for line in ours) == 3


@pytest.mark.parametrize("moment", [0, 2**53, 253_402_300_800_000])
def test_a_moment_of_no_calendar_has_no_day(moment: int) -> None:
    assert day_of(moment, ZONE) is None
    assert "at a time that nobody noted" in summed(spoken("x", at=moment))
    assert json.loads(list(transcript("a", "s", [spoken("x", at=moment)]))[-1])["at"] is None


def test_a_day_has_a_line_for_each_conversation_and_nothing_in_it_is_a_link_of_somebody_else() -> None:
    text = daily_log(
        "agent",
        "2027-01-15",
        ZONE,
        [
            DayLine(NOW + 60_000, NOW + 120_000, 2, "~/[b](http://x)", "<b>second</b>", "2027-01-15-b.md"),
            DayLine(NOW, NOW, 1, "", "first", "2027-01-15-a.md"),
        ],
    ).decode()
    lines = text.splitlines()
    assert lines[4] == "- 09:00 to 09:00, [1 piece](../sessions/2027-01-15-a.md): first"
    assert lines[5].endswith(r": \<b\>second\</b\>")
    assert r"\[b\](http" in lines[5]


def test_names_are_bounded_and_a_long_line_takes_no_time() -> None:
    named = Mentions()
    for number in range(1000):
        named.take(f"look at dir/file{number}.py and $ no\n$ command {number}")
    assert len(named.files) == len(named.commands) == NAMES_MAX
    named.take("a/" * 30_000 + "." * 30_000)
    named.take("x" * 64_000)
    assert len(named.files) == NAMES_MAX


@pytest.mark.parametrize("form", list(ArtefactForm))
def test_a_seal_tells_a_file_that_was_touched(form: ArtefactForm, tmp_path: Path) -> None:
    def look(data: bytes) -> ArtefactState:
        path = tmp_path / "file"
        path.write_bytes(data)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return look_at(descriptor).state
        finally:
            os.close(descriptor)

    whole = b"".join(sealed([b"one\n", b"two\n" * 200_000], form))
    assert look(whole) is ArtefactState.OURS
    for changed in (
        whole + b"\n",
        whole[:-1],
        whole[1:],
        whole.replace(b"one", b"One"),
        b"",
        b"\n",
        b"one\n",
    ):
        assert look(changed) is ArtefactState.CHANGED


def test_a_long_conversation_is_rendered_without_standing_in_memory(tmp_path: Path) -> None:
    count = 20_000
    bench = Workbench(tmp_path / "home")
    database = bench.replica.database
    with database.transaction():
        database.run("UPDATE index_state SET deferred = 1")
        database.run_many(
            "INSERT INTO chunks (rowid, id, forget_hash, text) VALUES (?1, randomblob(32), randomblob(32), ?1 || ?2)",
            ((number, " said" * 400) for number in range(1, count + 1)),
        )
        database.run(
            "INSERT INTO occurrences (chunk, agent, session, message, part, role, created_at, project, repository,"
            " source, device) SELECT rowid, 'a', 's', 'message ' || rowid, 0, 'user', ?1 + rowid, '', '', 'codex', ?2"
            " FROM chunks",
            (NOW, DEVICE),
        )
        database.run("UPDATE index_state SET deferred = 0")
    tracemalloc.start()
    try:
        pieces = Conversation(database, "a", "s", range(1, count + 1))
        sizes = [len(line) for line in transcript("a", "s", pieces)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(sizes) == count + 2
    assert sum(sizes) > 40_000_000
    assert peak < 10_000_000


def test_what_has_no_time_stands_where_it_was_recorded(tmp_path: Path) -> None:
    bench = Workbench(tmp_path / "home")
    database = bench.replica.database
    moments = [("first", 10), ("undated", 0), ("last", 30), ("between", 20)]
    with database.transaction():
        for number, (text, moment) in enumerate(moments, start=1):
            database.run(
                "INSERT INTO chunks (rowid, id, forget_hash, text) VALUES (?, randomblob(32), randomblob(32), ?)",
                (number, text),
            )
            database.run(
                "INSERT INTO occurrences VALUES (?1, ?1, 'a', 's', '', 0, 'user', ?2, '', '', 'drop', ?3, '')",
                (number, moment, DEVICE),
            )

    def order() -> Iterator[str]:
        return (piece.text for piece in Conversation(database, "a", "s", [1, 2, 3, 4]))

    assert list(order()) == ["first", "undated", "between", "last"]
