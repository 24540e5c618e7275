"""Whether the relay is to delete this vault, as it said last, for `crystal status`. It decides nothing."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct, json

from crystal_crypto.errors import UNDECODABLE
from crystal_node.device.journal import SqliteJournal
from crystal_relay.errors import NoSuchRoute

if TYPE_CHECKING:
    from crystal_node.device.device import Device

_META = "node.planned-deletion"


class PlannedDeletion(Struct, frozen=True):
    """``due``: when the relay deletes the vault, in Unix seconds."""

    number: int
    due: int

    @property
    def is_over(self) -> bool:
        """Whether the time has come."""
        return self.due <= time.time()

    @property
    def day(self) -> str:
        """The time, for people."""
        try:
            return datetime.fromtimestamp(self.due, UTC).strftime("%Y-%m-%d %H:%M UTC")
        except (ValueError, OverflowError, OSError):  # the relay may say anything
            return "an unknown day"


_DECODER = json.Decoder(PlannedDeletion)


def read_planned(journal: SqliteJournal) -> PlannedDeletion | None:
    """The deletion that waits at the relay; None if none does, as far as is known here."""
    data = journal.meta_get(_META)
    try:
        return _DECODER.decode(data) if data else None
    except UNDECODABLE:
        return None


def keep_planned(journal: SqliteJournal, number: int, due: int) -> PlannedDeletion | None:
    """Keeps what the relay said, and returns it. ``due`` 0: none waits."""
    planned = PlannedDeletion(number, due) if due > 0 else None
    if planned != read_planned(journal):
        with journal.transaction() as transaction:
            transaction.meta_set(_META, None if planned is None else json.encode(planned))
    return planned


async def look_for_deletion(device: "Device") -> None:
    """Asks the relay whether the vault is to be deleted, and keeps the answer. Raises RelayError, NotSetUp."""
    async with device.at_relay() as relay:
        try:
            found = await relay.deletion()  # §4.4-2
        except NoSuchRoute:
            keep_planned(device.journal, 0, 0)
        else:
            keep_planned(device.journal, found.number, found.due)
