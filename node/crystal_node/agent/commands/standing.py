"""How the commands stand on this device: numbers for `crystal status`, without a network."""

from dataclasses import dataclass

from crystal_mirror.commands.ports import ReceivedState
from crystal_mirror.commands.troubles import troubles
from crystal_node.agent.commands.database import SqliteBook
from crystal_node.base.home import Home


@dataclass(frozen=True, slots=True)
class CommandsStanding:
    """``asked`` of others and not over; ``running`` here; ``waiting`` here to run; ``oldest_ms``: when the oldest of these was
    written down here, by this machine's clock. ``noticed``: what was wrong in the channel, by name, and how often."""

    asked: int
    running: int
    waiting: int
    oldest_ms: int | None
    noticed: dict[str, int]


def commands_standing(home: Home) -> CommandsStanding | None:
    """None if this device has never asked or been asked. Raises BookDamaged."""
    if not home.commands_database.exists():
        return None
    book = SqliteBook.open(home.commands_database)
    try:
        asked = [row for row in book.all_asked() if not row.state.ended]
        received = [row for row in book.all_received() if not row.state.ended]
        noticed = {name: noted.count for name, noted in troubles(book).items()}
    finally:
        book.close()
    running = sum(row.state is ReceivedState.STARTED for row in received)
    moments = [row.asked_at for row in asked] + [row.received_at for row in received]
    return CommandsStanding(len(asked), running, len(received) - running, min(moments, default=None), noticed)
