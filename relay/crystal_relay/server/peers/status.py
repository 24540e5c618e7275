"""What a relay asks of the link to the other processes over its store, however they hear of each other."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from starlette.routing import Route

from crystal_relay.server.peers.receiver import Forget
from crystal_relay.server.rates import Rates
from crystal_relay.server.settings import RelaySettings


@dataclass(frozen=True, slots=True)
class PeersStatus:
    """Counters since the start, and the present state of the other processes."""

    known: int
    reached: int
    told: int
    not_told: int
    heard: int
    missed: int


class PeerLink(Protocol):
    """`fleet.Peers`, where each process tells each other one, or `broker.BrokerPeers`."""

    def routes(self, settings: RelaySettings, rates: Rates, forget: Forget) -> list[Route]:
        """The routes that other processes call. `forget` is given vaults whose credentials may have changed elsewhere."""
        ...

    async def forget(self, vault: str) -> None:
        """Tell all that the vault's credentials changed. Returns when the reachable ones know, or after 2 s."""
        ...

    def status(self) -> PeersStatus:
        """For the metrics."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Start, and stop at the end. Raises what the store raises."""
        ...
