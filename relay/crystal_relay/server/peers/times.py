"""Intervals and timeouts among relay processes, in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTimes:
    """Tests shorten them. All processes over one store should have the same."""

    heartbeat: float = 5.0
    """Interval of empty messages, by which lost messages are noticed."""
    silent: float = 15.0
    """A process silent for this long may have writes that no other process knows of."""
    round: float = 300.0
    """Approximate interval of reading the records in the store: one LIST and one GET each."""
    give_up: float = 900.0
    """A process unreachable for this long is removed from the list. If it still runs, it enters it again."""
    remember: float = 4200.0
    """How long the last writes of a departed process are known: longer than devices believe that nothing was written (an hour,
    §11.15-1 of docs/protocol.md)."""
    pace: float = 0.005
    """Pause between two messages to one process under load, times the number of processes."""
    retry_first: float = 0.05
    retry_last: float = 5.0
    greeting: float = 2.0
    """How long a start waits for the others to have heard of it."""
    announcement: float = 2.0
    """How long a revocation waits for the others to have heard of it."""
    farewell: float = 2.0
    """How long a stop takes at most to send what is pending."""
