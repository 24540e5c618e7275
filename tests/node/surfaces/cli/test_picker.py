"""The list on a terminal: what is drawn, and what a key does."""

from collections.abc import Sequence

import pytest

from crystal_node.surfaces.cli.console.picker import Choice, PickerState, fitted, matching, width

CHOICES = [
    Choice(
        "1",
        ("5 min", "claude-code", "desktop", "tide"),
        "Why does the export start late?",
        "+14",
        ("last words",),
    ),
    Choice("2", ("3 h", "codex", "laptop", "tide"), "Move the exporter to zstd"),
    Choice("3", ("2 days", "gemini-cli", "laptop", "notes"), "Explain the tables"),
]


def keys(found: Sequence[Choice]) -> list[str]:
    return [each.key for each in found]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["1", "2", "3"]),
        ("EXPORT", ["1", "2"]),
        ("tide zstd", ["2"]),
        ("laptop", ["2", "3"]),
        ("wdte", ["1"]),
        ("movexp", ["2"]),
        ("eta", ["3"]),
        ("eat", []),
        ("last words", ["1"]),
    ],
)
def test_what_is_typed_is_looked_for_in_all_that_is_shown(query: str, found: list[str]) -> None:
    assert keys(matching(CHOICES, query)) == found


def test_a_newer_list_keeps_what_is_chosen() -> None:
    state = PickerState("resume", CHOICES)
    state.key("down")
    state.replace([Choice("0", (), "just said"), *CHOICES])
    assert state.chosen is not None
    assert state.chosen.key == "2"
    state.replace([CHOICES[0]])
    assert state.chosen.key == "1"


def test_keys_move_type_erase_and_end() -> None:
    state = PickerState("resume", CHOICES)
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
        "4",
        ("\x1b[2J" * 50, "潮位計" * 30),
        "\x1b]0;title\x07 \u202egnp.exe " + "長い" * 200,
        "+1",
        ("\r\n" * 90,),
    )
    shown = PickerState("resume", [hostile, *CHOICES]).lines(columns, lines)
    assert len(shown) <= lines
    for line in shown:
        plain = line.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
        assert plain.isprintable()
        assert width(plain) <= max(columns, 21)


def test_wide_signs_take_two_columns() -> None:
    assert fitted("潮位計のデータ", 7) == "潮位計…"
    assert width(fitted("e\u0301te\u0301", 6)) == 6
