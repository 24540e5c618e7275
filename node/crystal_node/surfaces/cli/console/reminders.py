"""What everyday commands add on standard error: news of the vault, newer redaction rules, and that this device was revoked or
shut out.

It is read from what the last sync left, so that a command that needs no key opens none. News and newer rules are told once, and
only on a terminal; that this device is out is shown each time.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crystal_node.base.home import Home

_EVERY_DAY = frozenset({"capture", "sync", "search", "remember", "forget", "private"})


def tell(arguments: Sequence[str]) -> None:
    """Called after a command that succeeded. What cannot be read or written is left for the next time."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if not _EVERY_DAY.intersection(options[:1]) or "--json" in options:
        return
    import apsw

    from crystal_crypto.errors import CrystalError
    from crystal_node.base.settings import resolve
    from crystal_node.device.access import TEXTS, Access, peek_access
    from crystal_node.surfaces.cli.console.output import note

    try:
        home = resolve().home
        access = peek_access(home.state_database)
        if access is not Access.OPEN:
            note(TEXTS[access])
        if sys.stderr.isatty():
            _news(home)
    except (CrystalError, apsw.Error, OSError):
        return


def _news(home: "Home") -> None:
    from crystal_node.device.journal import SqliteJournal
    from crystal_node.device.redaction_version import HINT, are_older, note_told
    from crystal_node.surfaces.cli.console.output import note
    from crystal_node.sync.members.news import mark_waiting_shown, waiting_lines

    waiting, older = waiting_lines(home.state_database), are_older(home.state_database)
    lines = [*(waiting.lines if waiting is not None else ()), *([HINT] if older else [])]
    if not lines:
        return
    for line in lines:
        note(f"* {line}")
    journal = SqliteJournal.open(home.state_file())
    try:
        if waiting is not None:
            mark_waiting_shown(journal, waiting)
        if older:
            note_told(journal)
    finally:
        journal.close()
