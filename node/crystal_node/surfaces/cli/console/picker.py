"""A list on a terminal from which a person chooses by typing and by arrow keys. Loads nothing but the standard library.

    resume> tide ex                                             3 of 10,000
    > 5 min   claude-code  desktop  tide-gauge   Why does the export start late?         +14
      3 h     codex        laptop   tide-gauge   Move the exporter to zstd
      2 days  gemini-cli   laptop   notes        Explain the tide tables

      /home/ada/work/tide-gauge                                   what is chosen, in more words
      The export starts ten minutes after the backup, so …

Every word that was typed has to occur; one that does not may be spread over the beginnings of a title's words.
What is shown comes from other devices and is made printable. While it is open the list may be replaced by a newer one.
"""

import os
import select
import shutil
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Generic, TypeVar

from crystal_node.base.wording import printable

PREVIEW_LINES = 4
QUERY_CHARS_MAX = 200
_COLUMNS, _LINES = 80, 24
_ESCAPE_SECONDS = 0.05
"""A terminal sends the rest of an arrow key at once; behind a lone Escape nothing comes."""
_SIGNS_PER_COLUMN = 20
"""So much of a text is looked at: some signs take no column."""
_ROOMY_COLUMNS = 40
"""From this width on there is room for what stands behind a title."""
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_ENTER_SCREEN, _LEAVE_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Choice:
    """A line of the list. ``columns``: short facts before ``title``; ``behind``: one after it; ``preview``: more of it."""

    columns: tuple[str, ...]
    title: str
    behind: str = ""
    preview: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListView(Generic[T]):
    """How items are listed; only those on the screen become a ``choice``. ``key`` tells an item from others when the list is
    replaced. ``words``: what is searched, case-folded, the title in its first line."""

    key: Callable[[T], str]
    words: Callable[[T], str]
    choice: Callable[[T], Choice]


class PickerState(Generic[T]):
    """What is typed and chosen. ``done``: the person has chosen; ``left``: they went away."""

    def __init__(self, prompt: str, items: Sequence[T], view: ListView[T]) -> None:
        self.prompt = prompt
        self.query = ""
        self.done = self.left = False
        self._view = view
        self._all = self._found = items
        self._at = self._top = 0
        self._look()

    @property
    def chosen(self) -> T | None:
        return self._found[self._at] if self._found else None

    @property
    def found(self) -> Sequence[T]:
        """What the query lets through, in order."""
        return self._found

    def replace(self, items: Sequence[T]) -> None:
        """Takes a newer list. What was chosen stays so, if it is still there; at the top the newest one is."""
        key = self._view.key
        before = key(self._found[self._at]) if self._at else ""
        self._all = items
        self._look()
        at = next((number for number, each in enumerate(self._found) if before and key(each) == before), 0)
        self._at = at if before else 0

    def key(self, key: str) -> None:
        """Takes a key: a character, or a name of `_NAMED`."""
        page = 10
        moves = {"up": -1, "down": 1, "page up": -page, "page down": page}
        if key in moves:
            self._at = min(max(self._at + moves[key], 0), max(len(self._found) - 1, 0))
        elif key == "enter":
            self.done = self.chosen is not None
        elif key == "leave":
            self.left = True
        elif key == "erase":
            self._typed(self.query[:-1])
        elif key == "erase all":
            self._typed("")
        elif len(key) == 1 and key.isprintable() and len(self.query) < QUERY_CHARS_MAX:
            self._typed(self.query + key)

    def lines(self, columns: int, lines: int) -> list[str]:
        """The screen, with sequences for bold and dim, each line at most ``columns`` wide and never more than ``lines``."""
        columns = max(columns - 1, 20)  # a full last column would break the line on some terminals
        preview = PREVIEW_LINES + 1 if lines > PREVIEW_LINES + 6 else 0
        room = max(lines - 1 - preview, 1)
        self._top = min(max(self._top, self._at - room + 1), self._at)
        shown = [self._view.choice(each) for each in self._found[self._top : self._top + room]]
        count = f"{len(self._found):,} of {len(self._all):,}"
        head = fitted(f"{self.prompt}> {self.query}", columns - len(count) - 1)
        out = [f"{_BOLD}{head}{_PLAIN} {_DIM}{count}{_PLAIN}"]
        widths = [
            min(max((width(each.columns[at]) for each in shown if at < len(each.columns)), default=0), 20)
            for at in range(max((len(each.columns) for each in shown), default=0))
        ]
        for number, each in enumerate(shown, start=self._top):
            out.append(_line(each, widths, columns, chosen=number == self._at))
        if not self._found:
            out.append(f"  {_DIM}nothing fits{_PLAIN}")
        if preview and shown:
            out += [""] * (room + 1 - len(out)) + [""]
            out += [
                f"  {_DIM}{part}{_PLAIN}"
                for part in _wrapped(shown[self._at - self._top].preview, columns - 2)
            ]
        return out[:lines]

    def _typed(self, query: str) -> None:
        self.query = query
        self._at = self._top = 0
        self._look()

    def _look(self) -> None:
        self._found = matching(self._all, self.query, self._view.words)
        self._at = min(self._at, max(len(self._found) - 1, 0))


def matching(items: Sequence[T], query: str, words_of: Callable[[T], str]) -> Sequence[T]:
    """Those in which every word occurs, in order; then those in which some are spread over a title's words."""
    words = query.casefold().split()
    if not words:
        return items
    found: list[T] = []
    loose: list[T] = []
    for each in items:
        text = words_of(each)
        missing = [word for word in words if word not in text]
        if not missing:
            found.append(each)
        elif all(_spread(word, text.partition("\n")[0].split()) for word in missing):
            loose.append(each)
    return found + loose


def _spread(letters: str, words: Sequence[str]) -> bool:
    """Whether the letters are beginnings of words that follow each other in order: "wte" of "why the export"."""
    reachable = {0}
    for word in words:
        for at in sorted(reachable):
            length = 0
            while at + length < len(letters) and length < len(word) and letters[at + length] == word[length]:
                length += 1
                reachable.add(at + length)
        if len(letters) in reachable:
            return True
    return False


def pick(
    state: PickerState[T],
    changed: int | None = None,
    newer: Callable[[], Sequence[T] | None] = lambda: None,
    shown: Callable[[], None] = lambda: None,
) -> T | None:
    """Have a person choose at the terminal on standard input and error. None if they went away.

    ``changed``: a descriptor that can be read when ``newer`` has another list. ``shown``: called once the list is there.
    """
    keys = _Keys(sys.stdin.buffer)
    with _raw(sys.stdin.fileno()):
        try:
            _write(_ENTER_SCREEN + _HIDE)
            _draw(state)
            shown()
            while not state.done and not state.left:
                ready, _, _ = select.select([sys.stdin, *([] if changed is None else [changed])], [], [])
                if changed is not None and changed in ready:
                    if not os.read(changed, 4096):
                        changed = None
                    if (items := newer()) is not None:
                        state.replace(items)
                if sys.stdin in ready:
                    for key in keys.read():
                        state.key(key)
                _draw(state)
        finally:
            _write(_SHOW + _LEAVE_SCREEN)
    return state.chosen if state.done else None


def width(text: str) -> int:
    """Columns that a printable text takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # lazy: most titles are ASCII

    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def fitted(text: str, columns: int) -> str:
    """The text on one line of exactly so many columns, without anything that a terminal obeys."""
    text = " ".join(printable(text[: columns * _SIGNS_PER_COLUMN]).split())
    room = width(text)
    if room > columns:
        while text and room > columns - 1:
            room -= width(text[-1])
            text = text[:-1]
        text, room = text + "…", room + 1
    return text + " " * max(columns - room, 0)


def _line(each: Choice, widths: Sequence[int], columns: int, *, chosen: bool) -> str:
    facts = "  ".join(fitted(part, room) for part, room in zip(each.columns, widths, strict=False))
    facts = fitted(facts, min(width(facts), columns * 2 // 3))
    behind = printable(each.behind) if columns >= _ROOMY_COLUMNS else ""
    room = columns - 2 - width(facts) - 2 - (width(behind) + 1 if behind else 0)
    text = f"{facts}  {fitted(each.title, max(room, 1))}{' ' + behind if behind else ''}"
    return f"{_BOLD}> {text}{_PLAIN}" if chosen else f"  {text}"


def _wrapped(parts: Sequence[str], columns: int) -> list[str]:
    lines: list[str] = []
    for part in parts:
        text = " ".join(printable(part).split())
        while text and len(lines) < PREVIEW_LINES:
            line = fitted(text, columns) if len(lines) == PREVIEW_LINES - 1 else _first_line(text, columns)
            lines.append(line.rstrip())
            text = text[len(line) :].lstrip() if len(lines) < PREVIEW_LINES else ""
    return lines


def _first_line(text: str, columns: int) -> str:
    if width(text) <= columns:
        return text
    end = columns
    while width(text[:end]) > columns:
        end -= 1
    return text[: text.rfind(" ", 0, end + 1)] if " " in text[1:end] else text[:end]


def _draw(state: PickerState[T]) -> None:
    columns, lines = shutil.get_terminal_size((_COLUMNS, _LINES))
    shown = state.lines(columns, lines)
    _write(_HOME + "\r\n".join(line + _CLEAR_LINE for line in shown) + _CLEAR_BELOW)


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


@contextmanager
def _raw(descriptor: int) -> Generator[None]:
    import termios

    before = termios.tcgetattr(descriptor)
    own: list[Any] = [*before[:6], [*before[6]]]
    own[0] &= ~(termios.ICRNL | termios.IXON)
    own[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
    own[6][termios.VMIN], own[6][termios.VTIME] = 1, 0
    termios.tcsetattr(descriptor, termios.TCSADRAIN, own)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


_NAMED = {
    "\r": "enter",
    "\n": "enter",
    "\x03": "leave",
    "\x04": "leave",
    "\x07": "leave",
    "\x7f": "erase",
    "\b": "erase",
    "\x15": "erase all",
    "\x17": "erase all",
    "\x10": "up",
    "\x0b": "up",
    "\x0e": "down",
    "\t": "down",
}
_SEQUENCES = {
    "[A": "up",
    "OA": "up",
    "[B": "down",
    "OB": "down",
    "[5~": "page up",
    "[6~": "page down",
}


class _Keys:
    """Keys from the bytes that a terminal sends. The end of the input leaves the list."""

    def __init__(self, source: BinaryIO) -> None:
        import codecs

        self._descriptor = source.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""

    def read(self) -> list[str]:
        self._more()
        while self._text in ("\x1b", "\x1b[", "\x1bO") or (
            self._text.startswith("\x1b[") and not self._text[-1].isalpha() and self._text[-1] != "~"
        ):
            if not select.select([self._descriptor], [], [], _ESCAPE_SECONDS)[0]:
                break
            self._more()
        text, self._text = self._text, ""
        return list(_keys(text))

    def _more(self) -> None:
        try:
            data = os.read(self._descriptor, 4096)
        except OSError:  # the window was closed
            data = b""
        self._text += self._decoder.decode(data) if data else "\x04"


def _keys(text: str) -> Generator[str]:
    at = 0
    while at < len(text):
        if text[at] != "\x1b":
            yield _NAMED.get(text[at], text[at])
            at += 1
            continue
        end = at + 1
        if text[end : end + 1] in ("[", "O"):
            end += 1
            while end < len(text) and not (text[end].isalpha() or text[end] == "~"):
                end += 1
            end += 1
        name = _SEQUENCES.get(text[at + 1 : end])
        if name:
            yield name
        elif end == at + 1:
            yield "leave"
        at = max(end, at + 1)
