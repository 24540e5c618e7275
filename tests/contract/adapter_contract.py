"""What every adapter of a tool's transcripts must hold: each message once and none lost, whatever becomes of the file and of
who reads it; nothing that was private; bounded memory, no error, and no path outside, whatever a file says.

Whoever runs it subclasses ``AdapterContract`` and gives the fixture ``tool``.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crystal_mirror.operations import Piece, decode_operation, encode_operation
from crystal_node.capture import line_reader
from crystal_node.capture.adapter import Adapter, FoundTranscript, decode_state, encode_state
from crystal_node.capture.json_values import as_array, is_object
from crystal_node.capture.line_reader import FileState
from crystal_node.capture.tools import TOOLS as NAMES
from tests.node.capture.tools import QUIET_NS, Tool, line, pieces, read_all, rewound
from tests.node.capture.transcripts import nothing, said

TEXTS = [f"message {number}{'ä' * (number % 5)}" for number in range(6)]
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)


class Conversation:
    """One transcript of one tool, on disk."""

    def __init__(self, tool: Tool, root: Path) -> None:
        self.tool, self.root = tool, root
        self.adapter: Adapter = tool.adapter(root)
        self.path = root / tool.path
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, *parts: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(parts))

    def whole(self) -> bytes:
        return self.tool.begin() + b"".join(self.line(number) for number in range(len(TEXTS)))

    def line(self, number: int) -> bytes:
        return self.tool.line(number + 1, TEXTS[number])

    def said(self, state: FileState | None = None, quiet_ns: int = -1) -> tuple[list[str], FileState]:
        operations, _, state = read_all(self.adapter, self.path, state, quiet_ns=quiet_ns)
        return [text for _, text in said(operations)], state


class AdapterContract:
    """The suite."""

    @pytest.fixture
    def talk(self, tool: Tool, tmp_path: Path) -> Conversation:
        return Conversation(tool, tmp_path)

    def test_it_has_a_name_a_title_and_folders(self, talk: Conversation) -> None:
        assert talk.adapter.name == talk.tool.name
        assert talk.adapter.name in NAMES
        assert talk.adapter.title
        assert all(folder.is_relative_to(talk.root) for folder in talk.adapter.folders)

    def test_a_transcript_is_found_concerns_it_and_is_known_by_its_beginning(
        self, talk: Conversation
    ) -> None:
        assert list(talk.tool.adapter(talk.root / "nowhere").discover()) == []
        talk.write(talk.whole())
        assert list(talk.adapter.discover()) == [FoundTranscript(talk.path)]
        assert talk.adapter.concerns(str(talk.path))
        assert not talk.adapter.concerns(str(talk.path.with_suffix(".txt")))
        assert not talk.adapter.concerns(str(talk.root.parent / talk.path.name))
        assert any(talk.path.is_relative_to(folder) for folder in talk.adapter.folders)
        assert talk.adapter.recognises(json.loads(talk.whole().splitlines()[0]))
        assert not talk.adapter.recognises({"something": "else"})

    def test_links_are_not_followed(
        self, talk: Conversation, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        outside = tmp_path_factory.mktemp("outside")
        (outside / talk.path.name).write_bytes(talk.whole())
        talk.path.symlink_to(outside / talk.path.name)
        (talk.path.parent.parent / "linked").symlink_to(outside)
        assert list(talk.adapter.discover()) == []
        with pytest.raises(OSError, match=r"."):
            talk.adapter.read(talk.path, None, agent="a", hides=nothing)

    def test_messages_are_taken_once_in_order_with_session_source_and_place(self, talk: Conversation) -> None:
        talk.write(talk.whole())
        operations, counts, state = read_all(talk.adapter, talk.path)
        assert said(operations) == [("user", text) for text in TEXTS]
        assert counts.messages == len(TEXTS)
        assert counts.spots == []
        (operation,) = operations
        assert operation.agent == talk.adapter.agent_of(talk.path)
        assert (operation.source, operation.session) == (
            talk.tool.name,
            "6f1d2c1e-54a7-4b7e-9d3a-0c2f8e7b4a61",
        )
        assert operation.project in ("src", "")
        assert len({piece.message for piece in operation.pieces} - {""}) == len(TEXTS)
        assert all(piece.created_at > 0 for piece in operation.pieces)
        assert read_all(talk.adapter, talk.path, state)[0] == []

    @many
    @given(
        steps=st.lists(st.tuples(st.integers(0, 2000), st.booleans(), st.booleans()), max_size=8),
        bound=st.sampled_from([1, 200, 4_194_304]),
    )
    def test_any_way_of_growing_and_any_death_of_the_reader_give_the_same_messages(
        self,
        tool: Tool,
        tmp_path_factory: pytest.TempPathFactory,
        steps: list[tuple[int, bool, bool]],
        bound: int,
    ) -> None:
        """Each step: how much of the file is there, whether it has been quiet, whether the reader dies before it commits."""
        talk = Conversation(tool, tmp_path_factory.mktemp("grow"))
        whole = talk.whole()
        talk.write(whole)
        at_once = pieces(read_all(talk.adapter, talk.path)[0])
        state: FileState | None = None
        got: list[tuple[str, Piece]] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(line_reader, "PASS_BYTES_MAX", bound)
            for cut, quiet, dies in [
                *sorted((min(step[0], len(whole)), *step[1:]) for step in steps),
                (len(whole), False, False),
            ]:
                talk.path.write_bytes(whole[:cut])
                operations, _, after = read_all(
                    talk.adapter, talk.path, state, quiet_ns=QUIET_NS if quiet else -1
                )
                if not dies:
                    state = decode_state(encode_state(after))
                    got += pieces(operations)
        assert got == at_once

    def test_a_file_that_is_read_again_gives_the_same_ids(self, talk: Conversation) -> None:
        talk.write(talk.whole())
        first, _, _ = read_all(talk.adapter, talk.path)
        talk.path.write_bytes(talk.tool.begin() + talk.tool.line(77, "inserted") + talk.whole())
        again, _, _ = read_all(talk.adapter, talk.path)
        assert set(pieces(first)) <= set(pieces(again))

    def test_the_last_line_of_a_session_that_never_ended_is_taken_when_it_is_quiet(
        self, talk: Conversation
    ) -> None:
        talk.write(talk.whole().removesuffix(b"\n"))
        texts, state = talk.said()
        assert texts == TEXTS[:-1]
        assert not line_reader.unchanged(talk.path, state, QUIET_NS), "it is looked at once more"
        texts, state = talk.said(state, QUIET_NS)
        assert texts == TEXTS[-1:]
        assert line_reader.unchanged(talk.path, state, QUIET_NS)

    @pytest.mark.parametrize("between", [b"\n", b"\r\n", b"", b"\n\n"])
    def test_what_goes_on_behind_a_taken_last_line_is_neither_doubled_nor_lost(
        self, talk: Conversation, between: bytes
    ) -> None:
        talk.write(talk.whole().removesuffix(b"\n"))
        _, state = talk.said(quiet_ns=QUIET_NS)
        talk.write(between, talk.tool.line(50, "and on"))
        assert talk.said(state)[0] == ["and on"]
        assert talk.said()[0] == [*TEXTS, "and on"], "also for who reads it all at once"

    def test_a_torn_last_line_stays_and_costs_nothing_behind_it(self, talk: Conversation) -> None:
        torn = talk.tool.line(60, 'torn {"away')
        talk.write(talk.whole(), torn[: torn.index(b"away")])
        texts, state = talk.said(quiet_ns=QUIET_NS)
        assert texts == TEXTS
        assert line_reader.unchanged(talk.path, state, QUIET_NS), (
            "it was looked at, and is not looked at for ever"
        )
        talk.write(talk.tool.line(61, "started again"), talk.tool.line(62, "and on"))
        assert talk.said(state)[0] == ["started again", "and on"]

    @pytest.mark.parametrize(
        "damage",
        [
            b"not json",
            b"{",
            b"\xff\xfe\x00",
            b"[" * 50_000,
            b"null",
            b"7",
            b'"text"',
            b"{}",
            b"[]",
            b'{"type":"x","uuid":"x","text":"words"}',
        ],
    )
    def test_damage_is_counted_and_costs_nothing_beside_it(self, talk: Conversation, damage: bytes) -> None:
        talk.write(talk.tool.begin(), talk.line(0), damage + b"\n", talk.line(1))
        operations, counts, _ = read_all(talk.adapter, talk.path)
        assert [text for _, text in said(operations)] == TEXTS[:2]
        assert sum(counts.skipped.values()) >= 1
        assert len(counts.spots) == 1

    @many
    @given(data=st.data())
    def test_no_record_makes_reading_fail_or_an_operation_that_cannot_travel(
        self, tool: Tool, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        talk = Conversation(tool, tmp_path_factory.mktemp("any"))
        records = [*tool.header, tool.message(1, "one")]
        changed = [_changed(record, data) for record in records]
        talk.write(*map(line, changed), talk.tool.begin(), talk.tool.line(9, "after"))
        operations, _, _ = read_all(talk.adapter, talk.path)
        assert "after" in [text for _, text in said(operations)]
        for operation in operations:
            assert decode_operation(encode_operation(operation)) == operation
        assert all(ID.fullmatch(operation.agent) for operation in operations)

    @pytest.mark.parametrize(
        "name", ["..", "con", "$(touch x)", "a;b", "-rf", "\ud800x", "x" * 200, "日本", "a\nb", ".hidden"]
    )
    def test_no_name_of_a_folder_makes_an_agent_that_is_a_path_or_an_option(
        self, talk: Conversation, name: str
    ) -> None:
        parts = Path(talk.tool.path).parts
        for place in range(len(parts) - 1):
            path = talk.root.joinpath(*parts[:place], name, *parts[place + 1 :])
            assert ID.fullmatch(talk.adapter.agent_of(path))

    def test_private_moments_are_dropped_and_counted(self, talk: Conversation) -> None:
        talk.write(talk.whole())
        dated = [piece.created_at for _, piece in pieces(read_all(talk.adapter, talk.path)[0])]
        operations, counts, _ = read_all(talk.adapter, talk.path, hides=lambda moment: moment > dated[2])
        assert [text for _, text in said(operations)] == TEXTS[:3]
        assert counts.skipped["private"] == 3

    @pytest.mark.parametrize("cut", [0, 5, 40])
    def test_what_was_stepped_over_never_comes_up_and_the_session_is_known_behind_it(
        self, talk: Conversation, cut: int
    ) -> None:
        half = talk.tool.line(70, "private half")
        talk.write(talk.whole(), half[:cut])
        state = talk.adapter.skip(talk.path)
        talk.write(half[cut:] if cut else b"", talk.tool.line(71, "public"))
        operations, _, _ = read_all(talk.adapter, talk.path, state)
        assert [text for _, text in said(operations)] == ["public"]
        assert {one.session for one in operations} == {"6f1d2c1e-54a7-4b7e-9d3a-0c2f8e7b4a61"}

    def test_what_has_no_time_stays_out_when_a_stepped_over_file_is_read_again(
        self, talk: Conversation
    ) -> None:
        undated = [_undated(talk.tool.message(number, text)) for number, text in enumerate(TEXTS)]
        talk.write(talk.tool.begin(), *map(line, undated))
        state = talk.adapter.skip(talk.path)
        rewritten = talk.tool.begin() + talk.tool.line(80, "public") + b"".join(map(line, undated))
        talk.path.write_bytes(rewritten)
        texts, _ = talk.said(rewound(state))
        assert texts == ["public"]
        texts, _ = talk.said(state)
        assert texts == ["public"]

    def test_the_number_of_reasons_is_bounded(self, talk: Conversation) -> None:
        made_up = (line({"type": f"made-up-{number}", "role": f"r{number}\n"}) for number in range(300))
        talk.write(talk.tool.begin(), *made_up)
        assert len(read_all(talk.adapter, talk.path)[1].skipped) <= 3

    def test_a_credential_is_blanked_out(self, talk: Conversation) -> None:
        talk.write(talk.tool.begin(), talk.tool.line(1, "use ghp_16C7e42F292c6912E7710c838347Ae178B4a"))
        operations, counts, _ = read_all(talk.adapter, talk.path)
        assert [text for _, text in said(operations)] == ["use [redacted:github-token]"]
        assert dict(counts.redacted) == {"github-token": 1}


def _places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inside: dict[Any, Any] = value if is_object(value) else dict(enumerate(as_array(value)))
    for key, part in inside.items():
        yield from _places(part, (*path, key))


def _changed(record: dict[str, Any], data: st.DataObject) -> object:
    """The record with something else, or nothing, in one place."""
    copy: Any = json.loads(json.dumps(record))
    place = data.draw(st.sampled_from(list(_places(copy))))
    value = data.draw(json_values)
    if not place:
        return value
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return copy


def _undated(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "timestamp"}
