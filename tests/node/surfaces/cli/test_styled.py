"""Lines for a terminal look as rich would print them, without its console."""

import io
import os
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from crystal_node.base.wording import printable
from crystal_node.surfaces.cli.console.styled import Span, columns, cut, wrapped

_LOADED = """
import sys
from itertools import pairwise
from crystal_node.surfaces.cli.console.styled import columns, cut, wrapped
print(cut("a title", [(0, 7, "bold")], columns()), *wrapped("two words", [], 5))
sys.stderr.write(" ".join(sorted({"rich.console", "rich.text", "rich.style"} & set(sys.modules))))
"""
_TEXTS = st.text(st.sampled_from("ab  ä再試行e\u0301😀-…"), max_size=60).map(printable)
_STYLES = ("bold", "dim", "cyan", "yellow", "bold yellow")


def _printed(text: Text, width: int, *, lines: bool) -> list[str]:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=True,
        color_system="standard",
        markup=False,
        emoji=False,
        highlight=False,
    )
    for line in text.wrap(console, width, overflow="fold") if lines else [text]:
        if lines:
            line.rstrip()
        console.print(line, no_wrap=True, overflow="crop" if lines else "ellipsis")
    return out.getvalue().split("\n")[:-1]


def _no_terminal(descriptor: int) -> os.terminal_size:
    raise OSError(f"{descriptor} is no terminal")


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def _spans(text: str, ends: list[int]) -> list[Span]:
    """Spans beside each other, in turn styled and not."""
    places = sorted({min(end, len(text)) for end in ends})
    return [
        (start, end, _STYLES[number % len(_STYLES)])
        for number, (start, end) in enumerate(pairwise(places))
        if number % 2 == 0
    ]


@given(_TEXTS.filter(lambda text: text.strip()), st.lists(st.integers(0, 60), max_size=8), st.integers(2, 40))
def test_passages_are_broken_and_marked_as_rich_does(text: str, ends: list[int], width: int) -> None:
    spans = _spans(text, ends)
    drawn = Text(text)
    for start, end, style in spans:
        drawn.stylize(style, start, end)
    assert list(wrapped(text, spans, width)) == _printed(drawn, width, lines=True)


@given(_TEXTS, st.integers(2, 40))
def test_titles_are_cut_as_rich_does(text: str, width: int) -> None:
    assert [cut(text, [(0, len(text), "bold")], width)] == _printed(Text(text, "bold"), width, lines=False)


@pytest.mark.parametrize(
    ("given_width", "width"), [("100", 100), ("0", 80), ("wide", 80), ("999999", 80), ("", 80)]
)
def test_the_width_is_what_the_environment_says(
    given_width: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.get_terminal_size", _no_terminal)
    monkeypatch.setenv("COLUMNS", given_width)
    assert columns() == width
    monkeypatch.setenv("TERM", "dumb")
    assert columns() == 80


def test_rich_s_console_is_not_loaded() -> None:
    """Measured: 27 ms of a search's 95."""
    finished = subprocess.run(
        [sys.executable, "-c", _LOADED],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"TERM": "xterm"},
    )
    assert finished.stdout == "\x1b[1ma title\x1b[0m two words\n"
    assert finished.stderr == ""
