"""What all adapters must hold on transcripts that were kept of their tools: each message once, with its role, time, session,
project and model, however the files grow or are rewritten; no file is taken for another tool's, and rubbish ends nothing.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from crystal_mirror.operations import Piece
from crystal_node.capture.adapter import Adapter, decode_state, encode_state
from crystal_node.capture.json_values import as_array, as_object, is_object
from crystal_node.capture.line_reader import FileState
from crystal_node.capture.tools import TOOLS, adapter_of
from tests.node.capture.kept import KEPT, Kept, insert, told
from tests.node.capture.tools import QUIET_NS, pieces, read_all
from tests.node.capture.transcripts import FIXTURES, nothing

CUTS = 24
"""At so many places, evenly, each file is cut, besides its line ends."""
RUBBISH = [
    b"",
    b"\0" * 4096,
    b"not json",
    b"{",
    b"[" * 100_000,
    b"null\n7\n",
    b'{"type": "x"}',
    b"\xff\xfe",
    b"SQLite format 3\0" + b"\xff" * 5000,
]

ODD_VALUES: list[object] = [None, 7, "", "x", "file://[", [], [7], {}, {"text": 7}]


@pytest.fixture(params=KEPT, ids=str)
def kept(request: pytest.FixtureRequest) -> Kept:
    found: Kept = request.param
    return found


def _paths(adapter: Adapter) -> list[Path]:
    found = list(adapter.discover())
    assert [one.problem for one in found] == [None] * len(found)
    return [one.path for one in found]


def test_every_tool_has_kept_transcripts() -> None:
    assert {str(one) for one in KEPT} == set(TOOLS)


def test_each_message_is_there_once_with_its_role_time_session_project_and_model(
    kept: Kept, tmp_path: Path
) -> None:
    adapter = kept.copy(tmp_path / "root")
    said: list[list[Any]] = []
    for path in _paths(adapter):
        assert adapter.concerns(str(path))
        operations, counts, state = read_all(adapter, path)
        assert {(one.source, one.agent) for one in operations} <= {(str(kept), adapter.agent_of(path))}
        assert str(kept) == "drop" or counts.spots == []
        said += told(operations)
        assert read_all(adapter, path, decode_state(encode_state(state)))[0] == []
        assert adapter.unchanged(path, state)
    expected = kept.said()
    for got, wanted in zip(said, expected, strict=False):
        got[2] = got[2] if wanted[2] else 0
    assert said == expected


@pytest.mark.parametrize("kept", [one for one in KEPT if one.form != "database"], ids=str)
def test_a_file_that_is_read_while_it_grows_gives_the_same_messages(kept: Kept, tmp_path: Path) -> None:
    adapter = kept.copy(tmp_path / "root")
    for path in _paths(adapter):
        if path.suffix == ".md":  # is moved in as a whole
            continue
        whole = path.read_bytes()
        at_once = _known(pieces(read_all(adapter, path)[0]))
        ends = [at + 1 for at, byte in enumerate(whole) if byte == 0x0A]
        every = max(len(ends) // CUTS, 1)
        for cut in {*ends[::every], *range(1, len(whole), len(whole) // CUTS + 1)}:
            path.write_bytes(whole[:cut])
            first, _, state = read_all(adapter, path)
            path.write_bytes(whole)
            rest, _, _ = read_all(adapter, path, decode_state(encode_state(state)))
            got = [_known(pieces(part)) for part in (first, rest)]
            assert sorted(got[0] + got[1]) == sorted(at_once), cut


@pytest.mark.parametrize("kept", [one for one in KEPT if one.form == "database"], ids=str)
def test_a_database_that_is_read_while_it_grows_gives_the_same_messages(kept: Kept, tmp_path: Path) -> None:
    adapter = kept.copy(tmp_path / "root")
    (path,) = _paths(adapter)
    at_once = _known(pieces(read_all(adapter, path)[0]))
    path.unlink()
    state: FileState | None = None
    got: list[tuple[str, str, int, str, str]] = []
    with closing(apsw.Connection(str(path))) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute((FIXTURES / kept.folder / "schema.sql").read_text())
        for rows in _steps(kept):
            with database:
                for row in rows:
                    insert(database, row)
            operations, _, state = read_all(adapter, path, state)
            got += _known(pieces(operations))
            state = decode_state(encode_state(state))
        rest, _, state = read_all(adapter, path, state, quiet_ns=QUIET_NS)
        got += _known(pieces(rest))
        assert sorted(got) == sorted(at_once)
        database.execute("VACUUM")
    assert read_all(adapter, path, state)[0] == []


def test_a_file_that_is_written_anew_or_moved_to_another_machine_gives_the_same_ids(
    kept: Kept, tmp_path: Path
) -> None:
    adapter, other = kept.copy(tmp_path / "root"), kept.copy(tmp_path / "other")
    for path, copy in zip(_paths(adapter), _paths(other), strict=True):
        operations, _, state = read_all(adapter, path)
        assert _known(pieces(read_all(other, copy)[0])) == _known(pieces(operations))
        moved = path.with_name(path.name + ".new")
        shutil.copyfile(path, moved)
        moved.replace(path)
        assert read_all(adapter, path, state)[0] == []


def test_a_file_elsewhere_is_known_for_its_tools_and_no_others(kept: Kept, tmp_path: Path) -> None:
    adapter = kept.copy(tmp_path / "root")
    nowhere = [one.adapter(tmp_path / "nowhere", Path("/home/ada")) for one in KEPT]
    for number, path in enumerate(_paths(adapter)):
        copy = tmp_path / f"{number}{path.suffix}"
        shutil.copyfile(path, copy)
        assert adapter_of(nowhere, copy).name == str(kept)
        records = [record] if (record := _first(path)) is not None else []
        for one in records:
            assert [each.name for each in nowhere if each.recognises(one)] == [str(kept)]


def test_what_is_private_is_left_out_and_what_was_stepped_over_stays_out(kept: Kept, tmp_path: Path) -> None:
    adapter = kept.copy(tmp_path / "root")
    for path in _paths(adapter):
        everything, _, _ = read_all(adapter, path)
        hidden, counts, _ = read_all(adapter, path, hides=lambda _: True)
        assert hidden == []
        assert counts.skipped["private"] >= 1 or not everything
        state = adapter.skip(path)
        assert state.stepped_over
        assert read_all(adapter, path, decode_state(encode_state(state)), quiet_ns=QUIET_NS)[0] == []


@pytest.mark.parametrize("rubbish", RUBBISH, ids=range(len(RUBBISH)))
def test_rubbish_in_its_place_is_counted_or_named_and_ends_nothing(
    kept: Kept, rubbish: bytes, tmp_path: Path
) -> None:
    adapter = kept.copy(tmp_path / "root")
    for path in _paths(adapter):
        path.write_bytes(rubbish)
        with suppress(OSError):  # named as a problem of that file
            reading = adapter.read(path, None, agent="a", hides=nothing, quiet_ns=QUIET_NS)
            assert reading.operations == [] or str(kept) == "drop"
        with suppress(OSError):
            adapter.skip(path)


@pytest.mark.parametrize("kept", [one for one in KEPT if one.form == "documents"], ids=str)
def test_a_document_with_a_value_of_another_type_anywhere_ends_nothing(kept: Kept, tmp_path: Path) -> None:
    adapter = kept.copy(tmp_path / "root")
    for path in _paths(adapter):
        document = json.loads(path.read_text())
        for holder, key in list(_places(document)):
            before = holder[key]
            for odd in ODD_VALUES:
                holder[key] = odd
                path.write_text(json.dumps(document))
                adapter.read(path, None, agent="a", hides=nothing, quiet_ns=QUIET_NS)
            holder[key] = before


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every member of every object and array below a value."""
    members = as_object(value) or range(len(as_array(value)))
    for key in members:
        yield value, key
        yield from _places(value[key])


def _known(found: list[tuple[str, Piece]]) -> list[tuple[str, str, int, str, str]]:
    return [(session, piece.message, piece.part, piece.role, piece.text) for session, piece in found]


def _first(path: Path) -> dict[str, Any] | None:
    """What a file of lines or a document is known by."""
    try:
        text = path.read_text()
        found: object = json.loads(text if path.suffix == ".json" else text.partition("\n")[0])
    except ValueError:
        return None
    return found if is_object(found) else None


def _steps(kept: Kept) -> Iterator[list[dict[str, Any]]]:
    """The kept rows as their tool writes them: a message with its parts is there at once."""
    rows = kept.rows()
    parts = [row for row in rows if row["table"] == "part"]
    for row in rows:
        if row["table"] != "part":
            yield [row, *(part for part in parts if part["message_id"] == row["id"])]
