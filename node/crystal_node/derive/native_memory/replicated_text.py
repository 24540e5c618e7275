"""A text that several devices edit at once: a set of lines, each with a place of its own, that joins alike in any order.

An *observed-remove set without tombstones*: a line has a **dot** (who wrote it, and a number that this writer never uses
twice), and a text has **seen**, the highest number of each writer. Of two copies, a line that only one has was removed by the
other if that one has seen its dot, and is new to it if not. So a device that was cut off for a year brings nothing back, and a
removed line's words stand nowhere. ``join`` is commutative, associative and idempotent.

Lines are ordered by **places**: paths of numbers between which there is always room, as in Logoot. What one device puts in at
once has one path to itself, so that two devices' paragraphs never interleave. The first step of a path is a **root**: the
device that brought the first lines; two devices that each began with a text of their own have two roots (``sections`` overlays
them).

A line knows the **head** it was written under, and what it was written **over**. If a heading is removed on one device while a
line under it is written on another, the heading comes back with that line; if it was renamed, it does not.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import chain, islice
from typing import NamedTuple

import msgspec

LINES_MAX = 20_000
LINE_CHARS_MAX = 100_000
PLACE_STEPS_MAX = 1_000
ROOTS_MAX = 1_000
WRITERS_MAX = 1_000
"""A device is one more writer each time that its home is made again."""
NUMBER_MAX = 2**53 - 1
"""Of a step of a place: JSON's whole numbers."""
COUNT_MAX = 2**53 - 1
OVER_MAX = 64
_PAIRS_MAX = 4_000_000
"""So many pairs of lines are compared with each other at most, as lines that stand several times are: a second's work."""
_STEP = 2**20
"""Between two lines that come one after the other: room for as many others."""
_WRITER = re.compile(r"[0-9a-z-]{1,64}")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")

Dot = tuple[str, int]
Step = tuple[int, str]
Place = tuple[Step, ...]


class Line(msgspec.Struct, frozen=True, array_like=True):
    """One line without its end. ``head``: the heading above it when it was written. ``over``: lines that it took the place
    of."""

    place: Place
    dot: Dot
    text: str
    head: Dot | None = None
    over: tuple[Dot, ...] = ()

    @property
    def writer(self) -> str:
        return self.dot[0]


class ReplicatedText(msgspec.Struct, frozen=True):
    """``ghosts``: removed headings of lines that are still there. ``settled``: lines that are gone and of which a person
    decided: headings that are not to come back, and lines whose being written over twice is no conflict any more. It only
    grows."""

    lines: tuple[Line, ...] = ()
    ghosts: tuple[Line, ...] = ()
    seen: dict[str, int] = {}
    settled: tuple[Dot, ...] = ()

    @property
    def revived(self) -> tuple[Line, ...]:
        """The removed headings that come back: nothing was written over them."""
        replaced = {dot for line in self.lines for dot in line.over}.union(self.settled)
        return tuple(ghost for ghost in self.ghosts if ghost.dot not in replaced)


class ShownLine(msgspec.Struct, frozen=True, array_like=True):
    """One line of the file as it was written for a person: the lines that it stands for (several where devices wrote the same).

    ``local``: it is on this device alone. ``mark``: a note of ours on a conflict of these lines, no part of the text.
    """

    text: str
    dots: tuple[Dot, ...] = ()
    local: bool = False
    mark: bool = False


class Edited(NamedTuple):
    """The text after an edit, the lines that stay on this device, and what each line of the file stands for."""

    text: ReplicatedText
    local: tuple[Line, ...]
    shown: tuple[ShownLine, ...]


def join(one: ReplicatedText, other: ReplicatedText) -> ReplicatedText:
    """The text that has what both have."""
    mine, theirs = ({line.dot: line for line in text.lines} for text in (one, other))
    live: dict[Dot, Line] = {}
    for dot in mine.keys() | theirs.keys():
        left, right = mine.get(dot), theirs.get(dot)
        if left is not None and right is not None:
            live[dot] = min(left, right, key=msgspec.json.encode)
        elif left is not None and dot[1] > other.seen.get(dot[0], 0):
            live[dot] = left
        elif right is not None and dot[1] > one.seen.get(dot[0], 0):
            live[dot] = right
    all_lines = chain(one.ghosts, other.ghosts, one.lines, other.lines)
    pool = {line.dot: line for line in sorted(all_lines, key=msgspec.json.encode)}
    seen = {
        name: max(one.seen.get(name, 0), other.seen.get(name, 0))
        for name in one.seen.keys() | other.seen.keys()
    }
    return _made(live, pool, seen, {*one.settled, *other.settled})


def fault_of(text: ReplicatedText) -> str | None:
    """Why another device's copy is not believed; None if it may be."""
    lines = [*text.lines, *text.ghosts]
    if len(lines) + len(text.settled) > LINES_MAX:
        return f"it has more than {LINES_MAX:,} lines"
    if len(text.seen) > WRITERS_MAX:
        return f"it has more than {WRITERS_MAX:,} writers"
    if not all(_WRITER.fullmatch(name) and 0 < count <= COUNT_MAX for name, count in text.seen.items()):
        return "it names a writer that is none"
    if len({line.place[:1] for line in lines}) > ROOTS_MAX:
        return f"it began at more than {ROOTS_MAX:,} devices"
    for line in lines:
        if len(line.text) > LINE_CHARS_MAX or re.search(r"[\r\n\0]", line.text):
            return "a line of it is none"
        if not 2 <= len(line.place) <= PLACE_STEPS_MAX or len(line.over) > OVER_MAX:
            return "a line of it has no place"
        if line.place[-1][0] < 1 or not all(
            0 <= at <= NUMBER_MAX and _WRITER.fullmatch(name) for at, name in line.place
        ):
            return "a line of it has no place"
        if line.dot[1] > text.seen.get(line.dot[0], 0):
            return "it has a line that it has not seen"
    return None if len({line.dot for line in lines}) == len(lines) else "it has a line twice"


def headings(lines: Sequence[str]) -> list[int]:
    """Each line's level as a Markdown heading, from 1 to 6; 0 for what is none, as within fenced code."""
    levels: list[int] = []
    fence = ""
    for line in lines:
        opened = _FENCE.match(line)
        if fence:
            closes = opened and opened[1].startswith(fence) and not line[opened.end() :].strip()
            fence = "" if closes else fence
            levels.append(0)
        elif opened:
            fence = opened[1]
            levels.append(0)
        else:
            heading = _HEADING.match(line)
            levels.append(len(heading[1]) if heading else 0)
    return levels


def edited(
    text: ReplicatedText,
    local: Sequence[Line],
    shown: Sequence[ShownLine],
    lines: Sequence[str],
    *,
    staying: frozenset[int],
    writer: str,
    count: int,
) -> Edited:
    """The text after this device's file, which was ``shown``, has these ``lines``.

    ``staying``: indices of lines that are not to leave this device. ``count``: the writer's numbers begin here, or behind the
    last that was seen.
    """
    return _Edit(text, local, shown, lines, staying, writer, count).done()


class _Edit:
    def __init__(
        self,
        text: ReplicatedText,
        local: Sequence[Line],
        shown: Sequence[ShownLine],
        lines: Sequence[str],
        staying: frozenset[int],
        writer: str,
        count: int,
    ) -> None:
        self.text, self.shown, self.new, self.staying, self.writer = text, shown, lines, staying, writer
        self.count = max(count, text.seen.get(writer, 0) + 1)
        self.first = self.count
        self.own_count = max((line.dot[1] for line in local), default=0)
        self.ghosts = {line.dot: line for line in text.ghosts}
        self.live = {line.dot: line for line in text.lines}
        self.local = {line.dot: line for line in local}
        self.places = sorted({line.place for line in chain(text.lines, text.ghosts, local)})
        self.known = self.ghosts | self.live | self.local
        self.removed: set[Dot] = set()
        self.result: list[tuple[int, ShownLine]] = []
        self.levels = headings(lines)
        self.heads: list[tuple[int, Dot]] = []

    def done(self) -> Edited:
        old = [(line.text, line.local) for line in self.shown]
        new = [(line, number in self.staying) for number, line in enumerate(self.new)]
        noted: list[tuple[Dot, ...]] = []
        for same, i1, i2, j1, j2 in compared(old, new):
            if same:
                for shown, number in zip(self.shown[i1:i2], range(j1, j2), strict=True):
                    self._keep(shown, number)
                continue
            gone = self.shown[i1:i2]
            noted += [shown.dots for shown in gone if shown.mark]
            self._replace([dot for shown in gone if not shown.mark for dot in shown.dots], range(j1, j2))
        settled = self._settle(noted) | set(self.text.settled)
        live = {dot: line for dot, line in self.live.items() if dot not in self.removed}
        local = {dot: line for dot, line in self.local.items() if dot not in self.removed}
        seen = dict(self.text.seen)
        if self.count > self.first:
            seen[self.writer] = self.count - 1
        text = _made(live, self.known, seen, settled)
        return Edited(
            text, tuple(sorted(local.values(), key=by_place)), tuple(shown for _, shown in self.result)
        )

    def _keep(self, shown: ShownLine, number: int) -> None:
        self.result.append((number, shown))
        if shown.dots and not shown.mark:
            self._pass_heading(number, shown.dots[0])

    def _replace(self, gone: Sequence[Dot], numbers: range) -> None:
        self.removed.update(gone)
        over = list(gone)
        if any(self.levels[number] for number in numbers):
            over += [dot for each in gone if each in self.known for dot in self.known[each].over]
        wanted = [number for number in numbers if not is_mark(self.new[number])]
        replaced = tuple(islice(dict.fromkeys(dot for dot in over if dot not in self.local), OVER_MAX))
        for number, place in zip(wanted, self._room(len(wanted)), strict=True):
            stays = number in self.staying
            dot = self._next(local=stays)
            head = self._head(number)
            line = Line(place, dot, self.new[number], head, () if stays else replaced)
            (self.local if stays else self.live)[dot] = line
            self.known[dot] = line
            self.result.append((number, ShownLine(line.text, (dot,), local=stays)))
            self._pass_heading(number, dot)

    def _next(self, *, local: bool) -> Dot:
        if local:
            self.own_count += 1
            return ("", self.own_count)
        self.count += 1
        return (self.writer, self.count - 1)

    def _head(self, number: int) -> Dot | None:
        level = self.levels[number] or 7
        return next((dot for above, dot in reversed(self.heads) if above < level), None)

    def _pass_heading(self, number: int, dot: Dot) -> None:
        if (level := self.levels[number]) and dot[0]:
            self.heads = [*(each for each in self.heads if each[0] < level), (level, dot)]

    def _room(self, count: int) -> list[Place]:
        """Places for as many lines behind the last line of the result."""
        before = next(
            (
                self.known[each.dots[0]].place
                for _, each in reversed(self.result)
                if _stands(each, self.known)
            ),
            None,
        )
        if before is None:
            before = (self.places[0] if self.places else ((1, self.writer),))[:1]
        at = bisect_right(self.places, before)
        after = self.places[at] if at < len(self.places) and self.places[at][0] == before[0] else None
        base = _between(before, after, self.writer)
        found = (
            [base]
            if count == 1
            else [(*base, ((number + 1) * _STEP, self.writer)) for number in range(count)]
        )
        self.places[at:at] = found[:count]
        return found[:count]

    def _settle(self, noted: Sequence[Sequence[Dot]]) -> set[Dot]:
        """What is settled by this edit: headings that were taken away while lines under them stayed, and conflicts whose note
        was."""
        kept = {dot for _, each in self.result if not each.mark for dot in each.dots}
        lines = [self.known[dot] for dot in kept if dot in self.known]
        replaced = {dot for line in self.live.values() if line.dot not in self.removed for dot in line.over}
        gone = self.removed - replaced
        above: set[Dot] = set()
        wanted = [line.head for line in lines]
        while wanted:
            if (head := wanted.pop()) is not None and head in self.known and head not in above:
                above.add(head)
                wanted.append(self.known[head].head)
        found = above & gone
        found.update(*(self.known[head].over for head in found))
        for dots in noted:
            over = [set(self.live[dot].over) for dot in dots if dot in self.live]
            found |= {
                dot for number, one in enumerate(over) for other in over[:number] for dot in one & other
            }
            self._keep_ghosts({dot for dot in dots if dot in self.ghosts} & kept)
        return found

    def _keep_ghosts(self, dots: set[Dot]) -> None:
        """Headings that came back are lines like others from now on."""
        for at, (number, each) in enumerate(self.result):
            if each.mark or dots.isdisjoint(each.dots):
                continue
            ghost = self.ghosts[each.dots[0]]
            new = self._next(local=False)
            over = (ghost.dot, *ghost.over)[:OVER_MAX]
            self.live[new] = self.known[new] = Line(ghost.place, new, ghost.text, ghost.head, over)
            self.result[at] = (number, ShownLine(each.text, (new,)))


MARK = "<!-- crystal: "
"""Begins a note of ours in a file: nothing that begins so is part of the text."""


def is_mark(line: str) -> bool:
    return line.startswith(MARK)


def compared(old: Sequence[Hashable], new: Sequence[Hashable]) -> Iterator[tuple[bool, int, int, int, int]]:
    """Which parts are the same and which are not, as ``SequenceMatcher`` says, but no line that stands once in both is taken
    for removed and put in again (a *patience diff*): that would undo another device's removal of it."""
    count_old, count_new = Counter(old), Counter(new)
    at = {line: number for number, line in enumerate(new) if count_new[line] == 1}
    both = [(i, at[line]) for i, line in enumerate(old) if count_old[line] == 1 and line in at]
    before_i = before_j = 0
    for i, j in [*_longest_rise(both), (len(old), len(new))]:
        for same, i1, i2, j1, j2 in _between_anchors(old[before_i:i], new[before_j:j]):
            yield same, before_i + i1, before_i + i2, before_j + j1, before_j + j2
        if i < len(old):
            yield True, i, i + 1, j, j + 1
        before_i, before_j = i + 1, j + 1


def _between_anchors(
    old: Sequence[Hashable], new: Sequence[Hashable]
) -> Iterator[tuple[bool, int, int, int, int]]:
    if len(old) * len(new) <= _PAIRS_MAX:
        for kind, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            yield kind == "equal", i1, i2, j1, j2
        return
    shorter = min(len(old), len(new))
    first = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    last = next((n for n in range(shorter - first) if old[-1 - n] != new[-1 - n]), shorter - first)
    i, j = len(old) - last, len(new) - last
    yield True, 0, first, 0, first
    yield False, first, i, first, j
    yield True, i, len(old), j, len(new)


def _longest_rise(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most pairs of which both numbers rise."""
    ends: list[int] = []
    tails: list[int] = []
    previous: list[int] = []
    for number, (_, j) in enumerate(pairs):
        length = bisect_left(ends, j)
        previous.append(tails[length - 1] if length else -1)
        ends[length : length + 1] = [j]
        tails[length : length + 1] = [number]
    found: list[tuple[int, int]] = []
    number = tails[-1] if tails else -1
    while number >= 0:
        found.append(pairs[number])
        number = previous[number]
    return found[::-1]


def _stands(shown: ShownLine, known: dict[Dot, Line]) -> bool:
    return not shown.mark and bool(shown.dots) and shown.dots[0] in known


def _made(
    live: dict[Dot, Line], pool: dict[Dot, Line], seen: dict[str, int], settled: set[Dot]
) -> ReplicatedText:
    ghosts: dict[Dot, Line] = {}
    wanted = [line.head for line in live.values()]
    while wanted:
        dot = wanted.pop()
        if dot is not None and dot not in live and dot not in ghosts and dot in pool:
            ghosts[dot] = pool[dot]
            wanted.append(pool[dot].head)
    return ReplicatedText(
        tuple(sorted(live.values(), key=by_place)),
        tuple(sorted(ghosts.values(), key=by_place)),
        dict(sorted(seen.items())),
        tuple(sorted(settled)),
    )


def by_place(line: Line) -> tuple[Place, Dot]:
    """The order of lines in a text."""
    return line.place, line.dot


def _between(before: Place, after: Place | None, writer: str) -> Place:
    """A place behind ``before`` and ahead of ``after`` (None: of nothing), in the same root. Both may be a root alone."""
    found: list[Step] = [before[0]]
    depth = 1
    while True:
        low = before[depth] if depth < len(before) else None
        high = after[depth] if after is not None and depth < len(after) else None
        least = 0 if low is None else low[0]
        most = NUMBER_MAX + 1 if high is None else high[0]
        if most - least > 1:
            # At the end lines come one after the other; elsewhere both halves keep as much room.
            step = min(_STEP, (most - least) // 2) if high is None else (most - least) // 2
            return (*found, (least + step, writer))
        if low is not None:
            found.append(low)
            if high is not None and low < high:
                after = None
        elif high is not None and high[0] == 0:
            found.append(high)
        else:
            found.append((0, writer))
            after = None
        depth += 1
