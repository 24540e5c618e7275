"""What everyday commands add on standard error: news of the vault, newer redaction rules, and that this device was revoked or
shut out.

It is read from what the last sync left, so that a command that needs no key opens none. News and newer rules are told once, and
only on a terminal; that this device is out is shown each time.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_EVERY_DAY = frozenset({"capture", "sync", "search", "remember", "forget", "private"})


def is_reminded(arguments: Sequence[str]) -> bool:
    """Whether a command with these arguments is followed by reminders: an everyday one that prints for people."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return bool(_EVERY_DAY.intersection(options[:1])) and "--json" not in options


def tell(root: str) -> None:
    """Called after a command that succeeded in the home at ``root``. What cannot be read or written is left for next time."""
    import apsw

    from crystal_crypto.errors import CrystalError
    from crystal_node.device.access import TEXTS, Access, peek_access
    from crystal_node.device.journal_values import journal_path
    from crystal_node.surfaces.cli.console.output import note

    try:
        journal = journal_path(root)
        access = peek_access(journal)
        if access is not Access.OPEN:
            note(TEXTS[access])
        if sys.stderr.isatty():
            _news(journal)
    except (CrystalError, apsw.Error, OSError):
        return


def _news(path: "Path") -> None:
    from crystal_node.device.journal_values import META_NEWS, peek
    from crystal_node.device.redaction_version import HINT, are_older, note_told
    from crystal_node.surfaces.cli.console.output import note

    older = are_older(path)
    if not older and peek(path, META_NEWS) is None:
        return
    from crystal_node.device.journal import SqliteJournal
    from crystal_node.sync.members.news import mark_waiting_shown, waiting_lines

    waiting = waiting_lines(path)
    for line in (*(waiting.lines if waiting is not None else ()), *([HINT] if older else [])):
        note(f"* {line}")
    journal = SqliteJournal.open(path)
    try:
        if waiting is not None:
            mark_waiting_shown(journal, waiting)
        if older:
            note_told(journal)
    finally:
        journal.close()
