"""What a device knows of one file that it keeps in step, and the steps of keeping it so. Pure: no file is touched here.

::

    the tool's file --observed--> record --absorbed--> record --intended--> the file's new lines
                                    |  ^                           |
             this device's copy  <--+  +--- other devices' copies  +--- written, then confirmed

A process may die between any two of these steps. What was observed is kept before anything is made of it. The file is replaced
by a temporary one, and once that is there the record says what will be (``writing``). If it is still there at the next run,
the file was not replaced; if it is gone, it was. So what a person removed right after a crash is never mistaken for something
that never arrived.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import structs

from crystal_node.capture.private_words import without_private
from crystal_node.capture.redaction import redact
from crystal_node.derive.native_memory.replicated_text import (
    Line,
    ReplicatedText,
    ShownLine,
    compared,
    edited,
    fault_of,
    is_mark,
    join,
)
from crystal_node.derive.native_memory.sections import shown


class Record(msgspec.Struct, frozen=True):
    """``local``: lines that stay on this device. ``shown``: the file as it last was; None before it was first seen.

    ``writing``: the file as it is about to be, by the ``temporary`` one; None when nothing is under way.
    """

    text: ReplicatedText = ReplicatedText()
    local: tuple[Line, ...] = ()
    shown: tuple[ShownLine, ...] | None = None
    writing: tuple[ShownLine, ...] | None = None
    temporary: str = ""


def settled(record: Record, *, written: bool) -> Record:
    """The record after a run that may have died while it wrote. ``written``: it got as far as the file."""
    if record.writing is None:
        return record
    return structs.replace(
        record, shown=record.writing if written else record.shown, writing=None, temporary=""
    )


def observed(record: Record, lines: Sequence[str], *, writer: str, count: int) -> Record:
    """The record with what was changed in the file, which has ``lines`` now. ``count``: as ``edited`` takes it."""
    before = record.shown or ()
    if record.shown is not None and _words(before) == list(lines):
        return record
    result = edited(
        record.text, record.local, before, lines, staying=staying(lines), writer=writer, count=count
    )
    return Record(result.text, result.local, result.shown)


class Absorbed(NamedTuple):
    """``left_out``: how many copies were too much together with the others, and why the first of them was."""

    record: Record
    left_out: int = 0
    fault: str = ""


def absorbed(record: Record, copies: Iterable[ReplicatedText]) -> Absorbed:
    """The record with what other devices know. A copy with which no other device would take the text is left out."""
    text, left_out, first = record.text, 0, ""
    for copy in copies:
        joined = join(text, copy)
        fault = None if joined == text else fault_of(joined)
        if fault is None:
            text = joined
        else:
            left_out, first = left_out + 1, first or fault
    return Absorbed(record if text == record.text else structs.replace(record, text=text), left_out, first)


def intended(record: Record, name_of: Callable[[str], str]) -> tuple[ShownLine, ...]:
    """The lines that the file should have. ``name_of``: as ``sections.shown`` takes it."""
    return shown(record.text, record.local, name_of)


def staying(lines: Sequence[str]) -> frozenset[int]:
    """The indices of lines that do not leave this device: with credentials, or within ``<private>``."""
    text = "\n".join(lines)
    found: set[int] = set()
    for cleaned in (without_private(text), redact(text).text):
        if cleaned != text:
            found |= _changed(lines, cleaned.split("\n"))
    return frozenset(number for number in found if lines[number].strip() and not is_mark(lines[number]))


def _changed(lines: Sequence[str], cleaned: Sequence[str]) -> set[int]:
    return {number for same, i1, i2, _, _ in compared(lines, cleaned) if not same for number in range(i1, i2)}


def _words(lines: Iterable[ShownLine]) -> list[str]:
    return [line.text for line in lines]
