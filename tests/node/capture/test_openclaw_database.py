"""OpenClaw's database: its events are read as the lines that they were, once, while its program writes."""

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_node.capture import database_file, openclaw_database
from crystal_node.capture.adapter import decode_state, encode_state
from crystal_node.capture.line_reader import FileState
from crystal_node.capture.openclaw import OpenClaw
from crystal_node.capture.openclaw_database import JOURNAL_NAME, STORE_NAME
from tests.node.capture.tools import HOME, fixture, pieces, read_all, rewound
from tests.node.capture.transcripts import said
from tests.support.openclaw_store import SCHEMA, Store


def texts_of(store: Store, state: FileState | None = None) -> tuple[list[str], FileState]:
    operations, _, after = read_all(store.adapter, store.path, state)
    kept = decode_state(encode_state(after))
    assert kept == after
    return [text for _, text in said(operations)], after


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path)
    with closing(made.database):
        yield made


def test_events_are_read_like_the_lines_that_they_were(store: Store, tmp_path: Path) -> None:
    lines = OpenClaw(fixture("openclaw", tmp_path), HOME)
    path = next(lines.discover()).path
    for number, line in enumerate(path.read_text().splitlines()):
        store.add(path.stem, number, json.loads(line), packed=number % 2 == 0)
    moved, counts, _ = read_all(store.adapter, store.path)
    before, counts_before, _ = read_all(lines, path)
    assert pieces(moved) == pieces(before)
    assert counts.skipped == counts_before.skipped
    assert {(one.session, one.project, one.source) for one in moved} == {
        (one.session, one.project, one.source) for one in before
    }


def test_the_database_is_found_and_a_change_of_its_journal_concerns_it(store: Store) -> None:
    journal = store.path.with_name(JOURNAL_NAME)
    assert [found.path for found in store.adapter.discover()] == [store.path]
    assert store.adapter.concerns(str(store.path))
    assert store.adapter.concerns(str(journal))
    assert store.adapter.transcript(journal) == store.path
    assert not store.adapter.concerns(str(store.path.with_name("other.sqlite")))
    assert store.adapter.agent_of(store.path) == "main"


def test_what_is_added_to_any_session_is_read_once(store: Store) -> None:
    store.add("a", 0, {"type": "session", "version": 3, "id": "a", "cwd": "/home/mara/src"})
    store.say("a", 1, "one")
    texts, state = texts_of(store)
    assert texts == ["one"]
    assert store.adapter.unchanged(store.path, state)
    store.say("b", 0, "two", packed=True)
    store.say("a", 2, "three")
    assert not store.adapter.unchanged(store.path, state)
    operations, _, after = read_all(store.adapter, store.path, state)
    assert [(one.session, one.project) for one in operations] == [("a", "src"), ("b", "")]
    assert [piece.created_at for _, piece in pieces(operations)] == [1_789_000_000_002, 1_789_000_000_000]
    assert texts_of(store, after)[0] == []


def test_a_session_that_was_written_anew_is_read_again_under_the_same_ids(store: Store) -> None:
    for number in range(3):
        store.say("a", number, f"said {number}")
    first, _, state = read_all(store.adapter, store.path)
    store.database.execute("DELETE FROM transcript_events WHERE seq > 1")
    again, _, state = read_all(store.adapter, store.path, state)
    assert set(pieces(again)) < set(pieces(first))
    store.say("a", 2, "another")
    assert texts_of(store, state)[0] == ["another"]


def test_a_vacuum_loses_and_repeats_nothing(store: Store) -> None:
    for number in range(20):
        store.say("a", number, f"said {number}")
        store.say("b", number, f"told {number}")
    _, state = texts_of(store)
    store.database.execute("DELETE FROM transcript_events WHERE session_id = 'a'")
    store.database.execute("VACUUM")
    store.say("b", 20, "after")
    assert texts_of(store, state)[0] == ["after"]


def test_a_database_that_nobody_has_open_is_read_and_nothing_is_laid_beside_it(tmp_path: Path) -> None:
    made = Store(tmp_path)
    made.say("a", 0, "one")
    made.database.close()
    beside = sorted(made.path.parent.iterdir())
    texts, state = texts_of(made)
    assert texts == ["one"]
    assert sorted(made.path.parent.iterdir()) == beside == [made.path]
    assert made.adapter.unchanged(made.path, state)


def test_what_was_stepped_over_stays_out_and_what_is_read_again_comes_back(store: Store) -> None:
    store.say("a", 0, "before")
    state = store.adapter.skip(store.path)
    store.say("a", 1, "after")
    store.say("b", 0, "new")
    texts, state = texts_of(store, state)
    assert texts == ["after", "new"]
    assert state.stepped_over
    assert texts_of(store, rewound(state))[0] == ["before", "after", "new"], (
        "the moments say what was private"
    )


steps = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=25)


@settings(max_examples=30, deadline=None)
@given(steps, st.sampled_from([1, 300, 4_194_304]))
def test_any_way_of_growing_gives_each_event_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool, bool]], bound: int
) -> None:
    """Each step: one more event in a session, whether it is read then, and whether the reader dies before it commits."""
    store = Store(tmp_path_factory.mktemp("grow"))
    state: FileState | None = None
    got: list[str] = []
    with closing(store.database), pytest.MonkeyPatch.context() as patch:
        patch.setattr(openclaw_database, "PASS_BYTES_MAX", bound)
        for number, (session, reads, dies) in enumerate([*steps, ("a", True, False)]):
            store.say(session, number, f"said {number}")
            if reads:
                texts, after = texts_of(store, state)
                if not dies:
                    got, state = got + texts, after
    assert sorted(got) == sorted(f"said {number}" for number in range(len(steps) + 1))


@pytest.mark.parametrize("content", [b"not a database", b"SQLite format 3\0" + b"\xff" * 5000, b"\0" * 4096])
def test_what_is_no_database_is_a_problem_and_no_more(tmp_path: Path, content: bytes) -> None:
    made = Store(tmp_path)
    made.database.close()
    made.path.write_bytes(content)
    with pytest.raises(OSError, match="its database says"):
        made.adapter.read(made.path, None, agent="a", hides=lambda _: False)
    with pytest.raises(OSError, match="its database says"):
        made.adapter.skip(made.path)


def test_a_database_of_another_form_is_counted(tmp_path: Path) -> None:
    made = Store(tmp_path, "CREATE TABLE something (else_ TEXT)")
    with closing(made.database):
        operations, counts, _ = read_all(made.adapter, made.path)
    assert operations == []
    assert counts.skipped["database of unknown form"] == 1
    assert made.adapter.skip(made.path).stepped_over


def test_damaged_and_over_long_events_are_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openclaw_database, "LINE_BYTES_MAX", 1000)
    store.say("a", 0, "one")
    store.say("a", 1, "x" * 2000)
    store.say("a", 2, "y" * 100_000, packed=True)
    insert = "INSERT INTO transcript_events (session_id, seq, event_json, created_at, event_zstd) VALUES ('a', ?, ?, 0, ?)"
    store.database.execute(insert, (3, "no json", None))
    store.database.execute(insert, (4, None, b"no frame"))
    store.database.execute(insert, (5, None, None))
    store.say("a", 6, "two")
    operations, counts, _ = read_all(store.adapter, store.path)
    assert [text for _, text in said(operations)] == ["one", "two"]
    assert counts.skipped["line too long"] == 4
    assert counts.skipped["line is not JSON"] == 1


def test_texts_and_names_that_are_no_utf8_end_nothing(tmp_path: Path) -> None:
    made = Store(tmp_path, SCHEMA.replace("STRICT", ""))
    insert = "INSERT INTO transcript_events (session_id, seq, event_json, created_at) VALUES ({}, {}, {}, 0)"
    with closing(made.database):
        made.say("a", 0, "one")
        made.database.execute(insert.format("'a'", 1, "CAST(x'7bff7d' AS TEXT)"))
        made.say("a", 2, "two")
        texts, _ = texts_of(made)
        assert texts == ["one", "two"]
        for session, number in (("CAST(x'ff' AS TEXT)", "3"), ("'b'", "'none'")):
            made.database.execute(insert.format(session, number, "'{}'"))
            with pytest.raises(OSError, match="its database says"):
                made.adapter.read(made.path, None, agent="a", hides=lambda _: False)
            made.database.execute("DELETE FROM transcript_events WHERE session_id <> 'a'")


def test_a_link_in_its_place_is_not_followed(store: Store, tmp_path: Path) -> None:
    other = tmp_path / "agents" / "other" / "agent"
    other.mkdir(parents=True)
    (other / STORE_NAME).symlink_to(store.path)
    assert [found.path for found in store.adapter.discover()] == [store.path]
    with pytest.raises(OSError, match="regular file"):
        store.adapter.read(other / STORE_NAME, None, agent="a", hides=lambda _: False)


@pytest.mark.parametrize(
    "schema",
    [
        (
            "CREATE VIEW transcript_events AS WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
            " SELECT 's' AS session_id, x AS seq, '{}' AS event_json, 1 AS created_at FROM c"
        ),
        (
            "CREATE TABLE transcript_events (session_id, seq, event_json, created_at, event_zstd);"
            "INSERT INTO transcript_events VALUES ('s', 9e999, '{}', 1, NULL)"
        ),
    ],
)
def test_a_database_that_computes_for_ever_or_counts_to_infinity_ends_nothing(
    tmp_path: Path, schema: str
) -> None:
    made = Store(tmp_path, schema)
    with closing(made.database):
        with suppress(OSError):  # it is a problem of that file, and told as one
            assert texts_of(made)[0] == []
        with suppress(OSError):
            assert made.adapter.skip(made.path).stepped_over


def test_a_database_that_takes_too_long_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.say("s", 1, "Hello.")
    monkeypatch.setattr(database_file, "READ_SECONDS_MAX", -1.0)
    monkeypatch.setattr(database_file, "_STEPS_LOOK", 1)
    with pytest.raises(OSError, match="its database says"):
        texts_of(store)
