"""What a line does to what it carries. The same words for packets (`namespaces`) and for connections (`lines`)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weather:
    """One line between a device and the relay. Chances are between 0 and 1, times in seconds."""

    delay: float = 0.0
    """One way."""
    jitter: float = 0.0
    """Up to this much more, each packet by itself: packets overtake each other."""
    loss: float = 0.0
    """Of packets; of connections, the chance to break at a piece of what is sent."""
    doubled: float = 0.0
    """Of packets only: a connection doubles nothing by itself, those who try again do."""
    bytes_per_second: float = 0.0
    """0: as fast as it goes."""
    to_relay: bool = True
    from_relay: bool = True
    """False: nothing comes through that way. Who sends cannot tell that from a line that is slow."""


CALM = Weather()
CUT = Weather(to_relay=False, from_relay=False)
DEAF = Weather(from_relay=False)
"""What the device sends arrives and takes effect; it never hears so."""
