"""A replicated text as the lines of a file: removed headings that come back, texts that began apart, and notes on conflicts.

Two devices that each had a file before they were joined have texts of two roots. They are overlaid section by section: under a
heading that both have, what both say stands once, and what only the second says follows. A unit of that is a list item, a
paragraph or a block of code, never a line of one. The result depends on the lines alone, so all devices show the same.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby

from crystal_node.derive.native_memory.replicated_text import (
    MARK,
    Dot,
    Line,
    ReplicatedText,
    ShownLine,
    by_place,
    headings,
)

_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])[ \t]")
_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})")

Unit = list[ShownLine]
"""An item, a paragraph or a block of code, with the blank lines behind it."""


@dataclass
class _Section:
    path: tuple[str, ...]
    heading: ShownLine | None
    units: list[Unit] = field(default_factory=list[Unit])

    def lines(self) -> list[ShownLine]:
        return [*([self.heading] if self.heading else []), *chain.from_iterable(self.units)]


@dataclass(frozen=True)
class Conflict:
    """Lines that devices wrote over the same line at once; or, with ``revived``, a heading that one removed while another wrote
    below it. ``at``: the number of its first line in the file, from 0 on."""

    at: int
    lines: tuple[ShownLine, ...]
    writers: tuple[str, ...]
    revived: bool = False

    @property
    def dots(self) -> tuple[Dot, ...]:
        return tuple(dot for line in self.lines for dot in line.dots)


def shown(
    text: ReplicatedText, local: Sequence[Line], name_of: Callable[[str], str]
) -> tuple[ShownLine, ...]:
    """The lines of the file, with a note ahead of each conflict. ``name_of``: a device as notes name it, by the writer's
    name."""
    lines = _overlaid(text, local)
    notes = {conflict.at: conflict for conflict in conflicts(text, lines)}
    fenced = _fenced([line.text for line in lines])
    found: list[ShownLine] = []
    for number, line in enumerate(lines):
        conflict = notes.get(number)
        if conflict is not None and not fenced[number]:
            found.append(ShownLine(_note(conflict, name_of), conflict.dots, mark=True))
        found.append(line)
    return tuple(found)


def conflicts(text: ReplicatedText, lines: Sequence[ShownLine]) -> list[Conflict]:
    """The conflicts of a text that these lines show, in their order."""
    known, settled = {line.dot: line for line in text.lines}, set(text.settled)
    revived = {ghost.dot for ghost in text.revived}
    over: dict[Dot, list[int]] = {}
    found: list[Conflict] = []
    for number, line in enumerate(lines):
        if line.mark:
            continue
        for dot in {each for own in line.dots if own in known for each in known[own].over} - settled:
            over.setdefault(dot, []).append(number)
        if line.dots and line.dots[0] in revived:
            found.append(Conflict(number, (line,), (line.dots[0][0],), revived=True))
    for numbers in _joined(
        [each for each in over.values() if len({lines[at].dots[0][0] for at in each}) > 1]
    ):
        members = tuple(lines[number] for number in numbers)
        writers = tuple(dict.fromkeys(dot[0] for line in members for dot in line.dots))
        found.append(Conflict(numbers[0], members, writers))
    return sorted(found, key=lambda each: each.at)


def _joined(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Groups of numbers, those that have one in common as one."""
    leads: dict[int, int] = {}

    def lead(number: int) -> int:
        while (above := leads.setdefault(number, number)) != number:
            leads[number] = leads[above]
            number = above
        return number

    for group in groups:
        for number in group:
            leads[lead(number)] = lead(group[0])
    found: dict[int, list[int]] = {}
    for number in sorted(leads):
        found.setdefault(lead(number), []).append(number)
    return list(found.values())


def _note(conflict: Conflict, name_of: Callable[[str], str]) -> str:
    if conflict.revived:
        return f"{MARK}one device removed this heading while another wrote below it; it is kept -->"
    names = " and ".join(dict.fromkeys(map(name_of, conflict.writers)))
    return f"{MARK}the same line was changed on {names} at once; what each wrote is kept -->"


def _overlaid(text: ReplicatedText, local: Sequence[Line]) -> list[ShownLine]:
    here = {line.dot for line in local}
    lines = sorted(chain(text.lines, text.revived, local), key=by_place)
    result: list[_Section] = []
    for _, of_root in groupby(lines, key=lambda line: line.place[0]):
        added = [ShownLine(line.text, (line.dot,), local=line.dot in here) for line in of_root]
        sections = _sections(added)
        if result:
            _overlay(result, sections)
        else:
            result = sections
    flat = chain.from_iterable(section.lines() for section in result)
    return _once(flat, {line.dot: line for line in text.lines})


def _sections(lines: Sequence[ShownLine]) -> list[_Section]:
    levels = headings([line.text for line in lines])
    stack: list[tuple[int, str]] = []
    found = [_Section((), None)]
    bodies: list[list[ShownLine]] = [[]]
    for line, level in zip(lines, levels, strict=True):
        if level:
            stack = [*(each for each in stack if each[0] < level), (level, line.text.strip())]
            found.append(_Section(tuple(title for _, title in stack), line))
            bodies.append([])
        else:
            bodies[-1].append(line)
    for section, body in zip(found, bodies, strict=True):
        section.units = _units(body)
    return found


def _units(body: Sequence[ShownLine]) -> list[Unit]:
    fenced = _fenced([line.text for line in body])
    found: list[Unit] = []
    for number, line in enumerate(body):
        blank = not line.text.strip() and not fenced[number]
        last = found[-1] if found else None
        behind_blank = last is not None and not last[-1].text.strip() and not blank
        begins = _ITEM.match(line.text) or (_FENCE.match(line.text) and not (number and fenced[number - 1]))
        goes_on = fenced[number] and number > 0 and fenced[number - 1]
        if last is None or (not goes_on and not blank and (behind_blank or begins)):
            found.append([line])
        else:
            last.append(line)
    return found


def _fenced(lines: Sequence[str]) -> list[bool]:
    """Of each line whether it is within fenced code or one of its fences."""
    found: list[bool] = []
    fence = ""
    for line in lines:
        match = _FENCE.match(line)
        if fence:
            found.append(True)
            if match and match[0].strip().startswith(fence) and not line[match.end() :].strip():
                fence = ""
        else:
            fence = match[0].strip() if match else ""
            found.append(bool(match))
    return found


def _overlay(result: list[_Section], added: Sequence[_Section]) -> None:
    """Puts the sections of another root into those that are there."""
    free: dict[tuple[str, ...], list[_Section]] = {}
    for section in reversed(result):
        free.setdefault(section.path, []).append(section)
    for section in added:
        hosts = free.get(section.path)
        if hosts:
            _put_into(hosts.pop(), section)
        elif section.heading is not None or section.units:
            _spaced(result)
            result.append(section)


def _put_into(host: _Section, section: _Section) -> None:
    if host.heading is not None and section.heading is not None:
        host.heading = _both(host.heading, section.heading)
    waiting: dict[tuple[str, ...], list[int]] = {}
    for number in reversed(range(len(host.units))):
        waiting.setdefault(_words(host.units[number]), []).append(number)
    for unit in section.units:
        words = _words(unit)
        alike = waiting.get(words)
        if alike:
            number = alike.pop()
            host.units[number] = _merged(host.units[number], unit)
        elif words:
            if host.units and not _ITEM.match(unit[0].text):
                _end_unit(host.units[-1])
            host.units.append(unit)


def _spaced(result: Sequence[_Section]) -> None:
    lines = result[-1].lines() if result else []
    if lines and lines[-1].text.strip():
        result[-1].units.append([ShownLine("")])


def _end_unit(unit: Unit) -> None:
    if unit[-1].text.strip():
        unit.append(ShownLine(""))


def _words(unit: Unit) -> tuple[str, ...]:
    return tuple(line.text.rstrip() for line in unit if line.text.strip())


def _merged(host: Unit, unit: Unit) -> Unit:
    """Two units of the same words; blank lines are the host's, and stand for the other's as well."""
    others = iter([line for line in unit if line.text.strip()])
    merged = [_both(line, next(others)) if line.text.strip() else line for line in host]
    blank = tuple(dot for line in unit if not line.text.strip() for dot in line.dots)
    last = merged[-1]
    merged[-1] = ShownLine(last.text, (*last.dots, *blank), last.local)
    return merged


def _both(one: ShownLine, other: ShownLine) -> ShownLine:
    return ShownLine(one.text, (*one.dots, *other.dots), one.local or other.local)


def _once(lines: Iterable[ShownLine], known: Mapping[Dot, Line]) -> list[ShownLine]:
    """Without a line that stands twice in a row because two devices changed the same line in the same way."""
    found: list[ShownLine] = []
    for line in lines:
        if found and line.text.strip() and _alike(found[-1], line, known):
            found[-1] = _both(found[-1], line)
        else:
            found.append(line)
    return found


def _alike(one: ShownLine, other: ShownLine, known: Mapping[Dot, Line]) -> bool:
    if one.text != other.text or not one.dots or not other.dots or one.dots[0][0] == other.dots[0][0]:
        return False
    first, second = known.get(one.dots[0]), known.get(other.dots[0])
    if first is None or second is None:
        return False
    return first.place == second.place or not set(first.over).isdisjoint(second.over)
