"""A session's file on this machine, compared with a copy that came from another, and brought up to it.

The copy is redacted line by line; the tool's own file is not. Lines are the same if they are equal but for what was blanked in
one of them (``same_line``): so rules of different versions on two devices make no fork. A tool that was killed leaves half a
line:

    own file                      copy                     relation
    (none)                        a b                      ABSENT   the copy is written
    a                             a b                      BEHIND   ``b`` is appended, own bytes stay
    a b                           a b                      EQUAL    nothing
    a b c                         a b                      AHEAD    nothing
    a x                           a b                      FORKED   the copy goes elsewhere
    a, a beginning of b           a b                      BEHIND   the line is completed
    a, half a line                a b                      BEHIND   the half line is set aside
"""

import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from pathlib import Path

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import ExitCode, LocalStorage
from crystal_node.base.home import DIRECTORY_MODE, FILE_MODE, sync_directory, write_private
from crystal_node.base.wording import size
from crystal_node.capture.credentials import MARK
from crystal_node.capture.json_values import parse_json
from crystal_node.capture.line_reader import open_regular
from crystal_node.derive.sessions.line_redaction import FORGOTTEN_MARK, PRIVATE_MARK, LineRedactor

WRITTEN_SECONDS = 10.0
"""A file that changed so recently may be in the middle of an answer: nothing is appended to it."""
SPARE_BYTES = 16 * 1024 * 1024
"""Left free on a disk."""
_MARK_START = b"[redacted:"
_FORGOTTEN = re.compile(rb"\[forgotten\]\**|\*+")
_BLOCK_BYTES = 1024 * 1024
_TEMPORARY = ".crystal-"

Lines = Callable[[], Iterable[bytes]]
"""The lines of a copy from its first on, each with its end. Raises when the copy is damaged or not all here, at the latest at
its end."""


class SessionBusy(CrystalError):
    """The tool writes to the session's file at this moment."""

    exit_code = ExitCode.BUSY
    hint = "Wait until the tool has answered and leave it, then run this again."


class Relation(Enum):
    """How the own file stands to the copy; see the module."""

    ABSENT = "absent"
    EQUAL = "equal"
    BEHIND = "behind"
    AHEAD = "ahead"
    FORKED = "forked"


@dataclass(frozen=True, slots=True)
class Comparison:
    """``own``: bytes of the own file. For BEHIND: ``kept`` of them stay, ``seam`` and the copy from ``tail_at`` on follow."""

    relation: Relation
    own: int = 0
    changed_ns: int = 0
    kept: int = 0
    seam: bytes = b""
    tail_at: int = 0
    copy_bytes: int = 0

    @property
    def new_bytes(self) -> int:
        """How much is to be written."""
        if self.relation not in (Relation.ABSENT, Relation.BEHIND):
            return 0
        return len(self.seam) + self.copy_bytes - self.tail_at


def compare(own: Path | None, copy: Lines) -> Comparison:
    """Reads the copy to its end, so that a damaged one is found before anything is written.

    Raises:
        LocalStorage: the own file cannot be read, is no regular file, or has a name that this disk does not take.
    """
    lines = iter(copy())
    try:
        raw = None if own is None else open_regular(own)
    except FileNotFoundError:
        raw = None
    except OSError as error:
        raise LocalStorage(
            f"{own} cannot be read: {error.strerror or error}",
            hint="Look at what is there. What is no file of the tool's may be moved away; then run this again.",
        ) from error
    if raw is None:
        return Comparison(Relation.ABSENT, copy_bytes=sum(map(len, lines)))
    with raw, open(raw.fileno(), "rb", buffering=_BLOCK_BYTES, closefd=False) as file:
        found = os.fstat(raw.fileno())
        told = _compared(file, lines)
    total = told.copy_bytes + sum(map(len, lines))
    return Comparison(
        told.relation,
        own=found.st_size,
        changed_ns=found.st_mtime_ns,
        kept=told.kept,
        seam=told.seam,
        tail_at=told.tail_at,
        copy_bytes=total,
    )


def compare_lines(own: Iterable[bytes], copy: Lines) -> Comparison:
    """The same for lines of which no file is made, each of them whole; ``kept`` is all of them."""
    lines, count = iter(copy()), 0

    def counted() -> Iterator[bytes]:
        nonlocal count
        for line in own:
            count += len(line)
            yield line

    mine = counted()
    if (first := next(mine, None)) is None:
        return Comparison(Relation.ABSENT, copy_bytes=sum(map(len, lines)))
    told = _compared(chain((first,), mine), lines)
    return replace(told, own=count, copy_bytes=told.copy_bytes + sum(map(len, lines)))


def _compared(own: Iterable[bytes], copy: Iterator[bytes]) -> Comparison:
    """``copy_bytes``: of the lines that were taken from ``copy``."""
    at = taken = 0
    for line in own:
        other = next(copy, None)
        if other is None:
            return Comparison(Relation.AHEAD, copy_bytes=taken)
        before, taken = taken, taken + len(other)
        if line.endswith(b"\n"):
            if not same_line(line, other):
                return Comparison(Relation.FORKED, copy_bytes=taken)
            at += len(line)
        elif same_line(line + b"\n", other):
            return Comparison(
                Relation.BEHIND, kept=at + len(line), seam=b"\n", tail_at=taken, copy_bytes=taken
            )
        elif other.startswith(line):
            return Comparison(
                Relation.BEHIND, kept=at + len(line), tail_at=before + len(line), copy_bytes=taken
            )
        elif _is_json(line):
            return Comparison(Relation.FORKED, copy_bytes=taken)
        else:
            return Comparison(Relation.BEHIND, kept=at, tail_at=before, copy_bytes=taken)
    other = next(copy, None)
    if other is None:
        return Comparison(Relation.EQUAL, copy_bytes=taken)
    return Comparison(Relation.BEHIND, kept=at, tail_at=taken, copy_bytes=taken + len(other))


def same_line(one: bytes, other: bytes) -> bool:
    """Whether two lines are equal but for what was blanked in either: credentials, private words and time, forgotten texts.

    >>> same_line(b'{"text":"key sk-1234"}', b'{"text":"key [redacted:openai]"}')
    True
    """
    return one == other or _blanks(one, other) or _blanks(other, one)


def _blanks(full: bytes, blanked: bytes) -> bool:
    """Whether ``blanked`` is what a copy may have of ``full``."""
    if _fills(full, blanked) or _forgets(full, blanked):
        return True
    if PRIVATE_MARK.encode() in blanked and LineRedactor().line(full, hidden=True) == blanked:
        return True
    if b"<private>" not in full.lower():
        return False
    left = LineRedactor().line(full)
    return left == blanked or _fills(left, blanked) or _fills(blanked, left) or _forgets(left, blanked)


def _forgets(full: bytes, blanked: bytes) -> bool:
    """Whether ``full`` is ``blanked`` with as many other bytes in place of what was forgotten."""
    if FORGOTTEN_MARK not in blanked or len(full) != len(blanked):
        return False
    kept: list[bytes] = []
    at = 0
    for found in _FORGOTTEN.finditer(blanked):
        kept += (full[at : found.start()], found[0])
        at = found.end()
    filled = b"".join([*kept, full[at:]])
    return filled == blanked or _fills(filled, blanked)


def _fills(full: bytes, marked: bytes) -> bool:
    """Whether ``full`` is ``marked`` with something in place of each mark. Linear: parts are found from left to right."""
    if _MARK_START not in marked:
        return False
    # Latin-1 keeps bytes as they are, and marks are ASCII.
    first, *parts = MARK.split(marked.decode("latin-1"))
    text = full.decode("latin-1")
    if not parts or not text.startswith(first):
        return False
    at, last = len(first), parts.pop()
    for part in parts:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(text) - len(last) >= at and text.endswith(last)


def write(target: Path, copy: Lines, compared: Comparison, aside: Path) -> int:
    """Bring a file up to a copy, as compared. Returns how many bytes were written.

    ``aside``: a folder of the home, for half a line that a killed tool left. Nothing is replaced: a new file appears whole or
    not at all, under a name that nothing had; an own file only grows. Killed in between, the next call goes on.

    Raises:
        SessionBusy: the file has changed since it was compared, or just before.
        LocalStorage: the disk is full, or refuses.
    """
    if compared.relation not in (Relation.ABSENT, Relation.BEHIND):
        return 0
    _room(target, compared.new_bytes)
    try:
        if compared.relation is Relation.ABSENT:
            return create(target, copy())
        return _extend(target, copy, compared, aside)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise LocalStorage(
            f"{target} cannot be written: {'the disk is full' if full else error.strerror}",
            hint="Free some space, then run this again: what was begun is completed."
            if full
            else "Check who owns that folder and whether it may be written to, then run this again.",
        ) from error


def make_folder(folder: Path) -> None:
    """Makes a folder with those above it, readable by the owner only."""
    folder.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)


def _room(target: Path, needed: int) -> None:
    folder = target.parent
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed + SPARE_BYTES:
        raise LocalStorage(
            f"the disk of {folder} has {size(free)} free; the session takes {size(needed)}, and {size(SPARE_BYTES)} stay free",
            hint="Free some space, then run this again.",
        )


def create(target: Path, blocks: Iterable[bytes]) -> int:
    """Writes a new file, which appears whole or not at all. Returns its bytes. Raises SessionBusy, OSError."""
    make_folder(target.parent)
    temporary = target.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
    written = 0
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(descriptor, "wb", buffering=_BLOCK_BYTES) as file:
            for block in blocks:
                written += file.write(block)
            file.flush()
            os.fsync(file.fileno())
        _appear(temporary, target)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    sync_directory(target.parent)
    return written


def _appear(temporary: Path, target: Path) -> None:
    """Gives a file its name, unless something has that name by now."""
    try:
        os.link(temporary, target)
    except FileExistsError as error:
        raise SessionBusy(f"{target} has just been made by another program") from error
    except OSError as error:
        # Some file systems have no second names for a file.
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        try:
            # The name is taken first: a rename alone would replace what has it by now.
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        except FileExistsError as made:
            raise SessionBusy(f"{target} has just been made by another program") from made
        temporary.replace(target)


def _extend(target: Path, copy: Lines, compared: Comparison, aside: Path) -> int:
    descriptor = os.open(target, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        found = os.fstat(descriptor)
        if (found.st_size, found.st_mtime_ns) != (compared.own, compared.changed_ns):
            raise SessionBusy(f"{target} has changed while it was compared")
        # A time that is far ahead tells of a clock that was set back, not of a tool that writes.
        if abs(time.time() - found.st_mtime) < WRITTEN_SECONDS:
            raise SessionBusy(f"{target} was written to a moment ago")
        if compared.kept < compared.own:
            file.seek(compared.kept)
            make_folder(aside)
            write_private(aside / f"{target.stem}-{time.time_ns()}.part", file.read())
            file.truncate(compared.kept)
        written = 0
        try:
            for block in chain((compared.seam,), tail_of(copy(), compared.tail_at)):
                for count in _all(descriptor, block):
                    written += count
            os.fsync(descriptor)
        except BaseException:
            # Half a tail is half a line: the tool would write right behind it.
            if os.fstat(descriptor).st_size == compared.kept + written:
                file.truncate(compared.kept)
            raise
    return written


def _all(descriptor: int, block: bytes) -> Iterator[int]:
    """Yields how much each write took: a disk that becomes full takes a part of a block before it refuses."""
    at = 0
    while at < len(block):
        count = os.write(descriptor, block[at:])
        at += count
        yield count


def tail_of(lines: Iterable[bytes], at: int) -> Iterator[bytes]:
    """What follows the first ``at`` bytes."""
    for line in lines:
        if at < len(line):
            yield line[at:]
        at = max(at - len(line), 0)


def _is_json(line: bytes) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return False
    return True
