"""How often processes speak to each other, and when one of them counts as gone. Seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTimes:
    """Tests shorten them. All processes over one store should have the same."""

    heartbeat: float = 5.0
    """A process with nothing to tell says so, so that what was lost is noticed."""
    silent: float = 15.0
    """A process that was not heard for so long may have written things that nobody was told of."""
    round: float = 300.0
    """Between two looks at the records in the store, about: each is one LIST and one GET."""
    give_up: float = 900.0
    """A process that could not be reached for so long is taken off the list. If it lives, it puts itself back."""
    remember: float = 600.0
    """How long the last writes of one that left stay known: longer than a device goes without a round."""
    pace: float = 0.005
    """Between two messages to one process under load, for each process there is."""
    retry_first: float = 0.05
    retry_last: float = 5.0
    greeting: float = 2.0
    """How long a start waits for the others to have heard of it."""
    announcement: float = 2.0
    """How long a revocation waits for the others to have heard of it."""
    farewell: float = 2.0
    """How long a stop takes to tell what is left to tell."""
