"""The merge of texts: in any order alike, nothing lost, nothing back from the dead, and hostile copies refused."""

import difflib
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_node.derive.native_memory import replicated_text
from crystal_node.derive.native_memory.record import Record, absorbed, intended, observed, staying
from crystal_node.derive.native_memory.replicated_text import (
    LINES_MAX,
    WRITERS_MAX,
    ReplicatedText,
    fault_of,
    headings,
    is_mark,
    join,
)
from tests.node.derive.native_memory.simulator import simulate


class Writer:
    """A device with a file and nothing that fails."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.record = Record()
        self.count = 1

    def write(self, *lines: str) -> "Writer":
        self.count += 1
        self.record = observed(self.record, lines, writer=self.name, count=self.count)
        return self

    def hear(self, *others: "Writer") -> "Writer":
        self.record = absorbed(self.record, [other.record.text for other in others]).record
        lines = intended(self.record, str)
        self.record = Record(self.record.text, self.record.local, lines)
        return self

    @property
    def lines(self) -> list[str]:
        return [line.text for line in self.record.shown or ()]

    @property
    def words(self) -> list[str]:
        return [line for line in self.lines if line and not is_mark(line)]


def apart(first: Sequence[str], left: Sequence[str], right: Sequence[str]) -> tuple[Writer, Writer]:
    """Two devices that had the same, changed it, and then heard of each other."""
    one, other = Writer("a").write(*first), Writer("b")
    other.hear(one)
    one.write(*left)
    other.write(*right)
    before = Record(other.record.text)
    one.hear(other)
    other.record = absorbed(other.record, [one.record.text]).record
    other.hear(one)
    assert before.text != other.record.text or left == first
    assert one.lines == other.lines
    return one, other


TEXTS = st.lists(st.sampled_from(["", "# A", "## B", "- x", "- y", "z", "```", "# in code"]), max_size=8)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_copies_join_alike_in_any_order_and_any_number_of_times(
    first: list[str], one: list[str], two: list[str], three: list[str]
) -> None:
    base = Writer("base").write(*first)
    texts = [
        Writer(name).hear(base).write(*lines).record.text
        for name, lines in (("a", one), ("b", two), ("c", three))
    ]
    a, b, c = texts
    assert join(join(a, b), c) == join(a, join(b, c)) == join(join(c, a), b)
    assert join(a, b) == join(b, a)
    assert join(join(a, b), b) == join(a, b)
    assert all(fault_of(text) is None for text in (*texts, join(join(a, b), c)))


@given(TEXTS, TEXTS)
def test_a_file_that_nobody_else_changes_stays_to_the_letter(first: list[str], second: list[str]) -> None:
    writer = Writer("a").write(*first).hear()
    assert writer.lines == first
    assert writer.write(*second).hear().lines == second


def test_headings_within_each_other_that_a_person_removed_stay_away() -> None:
    writer = Writer("a").write("# Mine", "## Tools", "- use uv", "- use make").hear()
    assert writer.write("- use uv").hear().lines == ["- use uv"]


def test_a_line_that_stands_very_often_costs_no_square_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared_pairs: list[int] = []

    class Counted(difflib.SequenceMatcher[object]):
        def __init__(self, isjunk: None, a: Sequence[object], b: Sequence[object], autojunk: bool) -> None:
            compared_pairs.append(len(a) * len(b))
            super().__init__(isjunk, a, b, autojunk)

    monkeypatch.setattr(replicated_text, "SequenceMatcher", Counted)
    blank = [""] * 4_000
    writer = Writer("a").write("# A", *blank, "- x").hear()
    writer.write("# A", *blank[:2_000], "- new", *blank[:1_000], "- x").hear()
    assert writer.lines == ["# A", *blank[:2_000], "- new", *blank[:1_000], "- x"]
    assert staying(["the key is AKIAIOSFODNN7EXAMPLQ", *blank, "- x"]) == {0}
    assert sum(compared_pairs) < 5_000_000


@pytest.mark.parametrize("seed", range(24))
def test_no_line_is_lost_and_none_comes_back_in_random_edits_of_up_to_five_devices(seed: int) -> None:
    assert simulate(seed, 25) == []


def test_edits_in_different_places_make_no_conflict() -> None:
    one, _ = apart(["# A", "1", "2", "3"], ["# A", "1b", "2", "3"], ["# A", "1", "2", "3", "4"])
    assert one.lines == ["# A", "1b", "2", "3", "4"]


def test_paragraphs_that_two_devices_put_in_the_same_place_do_not_interleave() -> None:
    one, _ = apart(["top", "end"], ["top", "a1", "a2", "a3", "end"], ["top", "b1", "b2", "b3", "end"])
    assert "".join(one.words) in ("topa1a2a3b1b2b3end", "topb1b2b3a1a2a3end")


def test_the_same_change_on_both_is_made_once_and_is_no_conflict() -> None:
    one, _ = apart(["- old", "- end"], ["- new", "- end"], ["- new", "- end"])
    assert one.lines == ["- new", "- end"]


def test_a_heading_that_was_renamed_takes_along_what_another_device_wrote_below_it() -> None:
    one, _ = apart(["# A", "# Old", "1"], ["# A", "# New", "1"], ["# A", "# Old", "1", "2"])
    assert one.lines == ["# A", "# New", "1", "2"]


def test_a_heading_that_was_taken_away_from_above_its_lines_does_not_come_back_with_them() -> None:
    one, _ = apart(["# A", "1", "# B", "2"], ["# A", "1", "2"], ["# A", "1", "# B", "2", "3"])
    assert one.lines == ["# A", "1", "2", "3"]


def test_a_line_in_code_is_no_heading_and_code_stays_in_one_block() -> None:
    assert headings(["# A", "```", "# b", "```", "## C", "#no"]) == [1, 0, 0, 0, 2, 0]
    one, other = Writer("a").write("# Run", "```", "make a", "```"), Writer("b")
    other.write("# Run", "```", "make b", "```")
    one.hear(other)
    assert one.words == ["# Run", "```", "make a", "```", "```", "make b", "```"]


def test_no_note_stands_within_code() -> None:
    one, _ = apart(["```", "x", "```"], ["```", "y", "```"], ["```", "z", "```"])
    assert not any(is_mark(line) for line in one.lines)
    assert sorted(one.lines) == ["```", "```", "y", "z"]


def test_lines_that_stay_here_are_those_with_credentials_and_within_private() -> None:
    lines = ["a", "<private>", "b", "c", "</private>", "d", "password = hunter2-Secret-99x", "e"]
    kept = staying(lines)
    assert kept >= {1, 2, 3, 4}
    assert kept.isdisjoint({0, 5, 7})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seen", {"A B": 1}),
        ("seen", {"a": 2**63}),
        ("seen", {}),
        ("lines", [[[[1, "a"]], ["a", 2], "x"]]),
        ("lines", [[[[1, "a"], [0, "a"]], ["a", 2], "x"]]),
        ("lines", [[[[1, "a"], [-1, "a"]], ["a", 2], "x"]]),
        ("lines", [[[[1, "a"], [1, "a"]], ["a", 2], "x\ny"]]),
        ("lines", [[[[1, "a"], [1, "a"]], ["a", 2], "x"]] * 2),
        ("settled", [["a", number] for number in range(LINES_MAX)]),
    ],
)
def test_a_copy_that_no_device_makes_is_refused(field: str, value: object) -> None:
    honest = Writer("a").write("x").record.text
    assert fault_of(honest) is None
    document = msgspec.to_builtins(honest) | {field: value}
    assert fault_of(msgspec.json.decode(msgspec.json.encode(document), type=ReplicatedText)) is not None


def test_a_text_that_is_written_at_its_top_a_thousand_times_stays_small() -> None:
    writer = Writer("a").write("# News")
    for number in range(1000):
        writer.write("# News", str(number), *writer.lines[1:60])
    longest = max(len(line.place) for line in writer.record.text.lines)
    assert longest < 60
    assert fault_of(writer.record.text) is None


def test_copies_that_are_too_much_together_are_left_out_and_counted() -> None:
    """Else this device's own copy would be refused by all others, without a word."""
    half = WRITERS_MAX // 2 + 1
    copies = [
        ReplicatedText(seen={f"{name}{number:x}": 1 for number in range(half)}) for name in ("a-", "b-")
    ]
    assert all(fault_of(copy) is None for copy in copies)
    result = absorbed(Record(), copies)
    assert result.record.text == copies[0]
    assert (result.left_out, result.fault) == (1, f"it has more than {WRITERS_MAX:,} writers")
    assert fault_of(result.record.text) is None
    assert absorbed(result.record, copies) == (result.record, 1, result.fault)
