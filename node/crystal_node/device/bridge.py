"""What this device takes in from the relay of another program's devices, for `crystal status`."""

from msgspec import Struct, json

from crystal_crypto.errors import UNDECODABLE
from crystal_node.device.journal import SqliteJournal

_META = "node.bridge"


class BridgeReport(Struct, frozen=True):
    """``url``: that relay. ``drops``, ``messages``: taken in so far. ``sealed``: drops that wait there and cannot be opened.
    ``unread``: drops that wait there because they were opened, and what they hold was not understood, or not all of it.
    ``at``: when it was last asked, milliseconds since 1970, 0 for never. ``trouble``: why that failed, "" if it did not."""

    url: str
    drops: int = 0
    messages: int = 0
    sealed: int = 0
    unread: int = 0
    at: int = 0
    trouble: str = ""


def read_bridge(journal: SqliteJournal) -> BridgeReport | None:
    """The report; None if this device bridges nothing."""
    data = journal.meta_get(_META)
    if not data:
        return None
    try:
        return json.decode(data, type=BridgeReport)
    except UNDECODABLE:
        return None


def write_bridge(journal: SqliteJournal, report: BridgeReport | None) -> None:
    """Keeps the report; None ends it."""
    with journal.transaction():
        journal.meta_set(_META, b"" if report is None else json.encode(report))
