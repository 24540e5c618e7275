"""Finding a text of the memory by its id, whole or as many of its first digits as make it unique.

``text_ids`` says what an id looks like.
"""

import re
from dataclasses import dataclass, field

from crystal_core.database import Database
from crystal_core.messages import chunks_between
from crystal_core.schema import HIDDEN
from crystal_node.base.errors import NoSuchEntry, UsageError
from crystal_node.base.text_ids import ID_DIGITS_MAX, ID_DIGITS_MIN, PLACE_DIGITS, PLACE_SIGN

_ID = re.compile(r"[0-9a-f]+")
_PLACE = re.compile(rf"[0-9a-f]{{{PLACE_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class StoredText:
    """A text of the memory: its chunk's rowid, its id, and the keyed hash by which it is forgotten."""

    chunk: int
    id: bytes
    forget_hash: bytes
    words: str = field(repr=False)


def place_in(given: str) -> str:
    """The place that an id names behind its @, "" if it names none. Raises Usage."""
    _, sign, place = given.strip().lower().partition(PLACE_SIGN)
    if sign and not _PLACE.fullmatch(place):
        raise no_id(given)
    return place


def find_text(database: Database, given: str) -> StoredText:
    """The one text whose id begins with ``given``, replicated or provisional. A place behind the id is no matter.

    Raises:
        Usage: not the beginning of an id, or of more than one text's.
        NoSuchEntry: no text here has that id.
    """
    place_in(given)
    digits, _, _ = given.strip().lower().partition(PLACE_SIGN)
    if not is_id(digits):
        raise no_id(given)
    low = bytes.fromhex(digits.ljust(ID_DIGITS_MAX, "0"))
    high = bytes.fromhex(digits.ljust(ID_DIGITS_MAX, "f"))
    with database.snapshot():
        rows = [
            row
            for chunk in chunks_between(database, low, high)
            for row in database.rows(
                "SELECT rowid, id, forget_hash, text FROM chunks WHERE rowid = ?", (chunk,)
            )
        ]
    if not rows:
        raise NoSuchEntry(f"no message or memory here has the id {digits[:16]}")
    if len(rows) > 1:
        raise UsageError(f"{digits} is the beginning of more than one id", hint="Give more of its digits.")
    return StoredText(*rows[0])


def is_id(given: str) -> bool:
    """Whether it has the form of an id, or of enough of one's first digits."""
    digits, _, _ = given.strip().lower().partition(PLACE_SIGN)
    return bool(_ID.fullmatch(digits)) and ID_DIGITS_MIN <= len(digits) <= ID_DIGITS_MAX


def texts_with(database: Database, words: str, limit: int) -> tuple[list[StoredText], int]:
    """Texts that contain these words in this order, in any case and with any spaces between; and how many there are in all.

    The newest come first, ``limit`` at most. Reads all texts: about 0.3 s for 100,000. Raises UsageError for no words.
    """
    wanted = _plain(words)
    if not wanted:
        raise UsageError("there are no words to look for", hint="Give a few that stand in the message.")
    found: list[StoredText] = []
    count = 0
    shown = f"SELECT rowid, id, forget_hash, text FROM chunks WHERE forget_hash NOT IN ({HIDDEN}) ORDER BY rowid DESC"  # noqa: S608
    with database.snapshot():
        for row in database.rows(shown):
            if wanted in _plain(row[3]):
                count += 1
                if count <= limit:
                    found.append(StoredText(*row))
    return found, count


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def no_id(given: str) -> UsageError:
    """The error for what is no id."""
    return UsageError(
        f"{given[:80]!r} is no id",
        hint=f"An id has {ID_DIGITS_MAX} hexadecimal digits; the first {ID_DIGITS_MIN} or more will do."
        f" A place may follow it: ID{PLACE_SIGN}PLACE, with {PLACE_DIGITS} digits.",
    )


def find_shown_text(database: Database, given: str) -> StoredText:
    """``find_text`` for texts that may be shown: raises NoSuchEntry also for one that a pending forget hides."""
    with database.snapshot():
        found = find_text(database, given)
        hidden = f"SELECT EXISTS (SELECT 1 FROM ({HIDDEN}) WHERE forget_hash = ?)"  # noqa: S608 - a constant of ours
        if database.value(hidden, (found.forget_hash,)):
            raise NoSuchEntry("that message or memory was forgotten")
    return found
