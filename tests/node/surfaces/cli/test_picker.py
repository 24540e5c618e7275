"""The list on a terminal: what is drawn, and what a key does."""

import pytest

from crystal_node.surfaces.cli.console import picker
from crystal_node.surfaces.cli.console.picker import Choice, ListView, PickerState, fitted, matching, width

WHY = Choice(
    ("5 min", "claude-code", "desktop", "tide"), "Why does the export start late?", "+14", ("last words",)
)
MOVE = Choice(("3 h", "codex", "laptop", "tide"), "Move the exporter to zstd")
EXPLAIN = Choice(("2 days", "gemini-cli", "laptop", "notes"), "Explain the tables")
CHOICES = [WHY, MOVE, EXPLAIN]


def words(each: Choice) -> str:
    return "\n".join((each.title, *each.columns, *each.preview)).casefold()


VIEW = ListView[Choice](key=lambda each: each.title, words=words, choice=lambda each: each)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", [WHY, MOVE, EXPLAIN]),
        ("EXPORT", [WHY, MOVE]),
        ("tide zstd", [MOVE]),
        ("laptop", [MOVE, EXPLAIN]),
        ("wdte", [WHY]),
        ("movexp", [MOVE]),
        ("eta", [EXPLAIN]),
        ("eat", []),
        ("last words", [WHY]),
    ],
)
def test_what_is_typed_is_looked_for_in_all_that_is_shown(query: str, found: list[Choice]) -> None:
    assert list(matching(CHOICES, query, words)) == found


def test_a_newer_list_keeps_what_is_chosen() -> None:
    state = PickerState("resume", CHOICES, VIEW)
    state.key("down")
    state.replace([Choice((), "just said"), *CHOICES])
    assert state.chosen == MOVE
    state.replace([WHY])
    assert [state.chosen] == [WHY]


def test_keys_move_type_erase_and_end() -> None:
    state = PickerState("resume", CHOICES, VIEW)
    for key in ("down", "down", "down", "up"):
        state.key(key)
    assert state.chosen == CHOICES[1]
    for key in ("x", "x", "enter"):
        state.key(key)
    assert [state.query, list(state.found), state.done] == ["xx", [], False]
    state.key("erase")
    state.key("erase all")
    state.key("enter")
    assert [state.query, list(state.found), state.done] == ["", CHOICES, True]


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
@pytest.mark.parametrize("lines", [1, 3, 24])
def test_it_fits_any_terminal(columns: int, lines: int) -> None:
    hostile = Choice(
        ("\x1b[2J" * 50, "潮位計" * 30),
        "\x1b]0;title\x07 \u202egnp.exe " + "長い" * 200,
        "+1",
        ("\r\n" * 90,),
    )
    shown = PickerState("resume", [hostile, *CHOICES], VIEW).lines(columns, lines)
    assert len(shown) <= lines
    for line in shown:
        plain = line.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
        assert plain.isprintable()
        assert width(plain) <= max(columns, 21)


def test_wide_signs_take_two_columns() -> None:
    assert fitted("潮位計のデータ", 7) == "潮位計…"
    assert width(fitted("e\u0301te\u0301", 6)) == 6


def test_of_an_endless_name_only_what_may_have_room_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    def counted(text: str) -> str:
        looked_at.append(len(text))
        return text

    monkeypatch.setattr(picker, "printable", counted)
    assert len(fitted("a" * 1_000_000, 80)) == 80
    assert max(looked_at) < 10_000
