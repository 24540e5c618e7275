"""The port for routes and operator's requests that a relay has beside its own, such as the published prototype's.

`crystal_relay.cli.extensions` lists those that ship. The relay's own modules know none of them by name.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

import msgspec
from starlette.routing import Route

from crystal_relay.server.load import Load
from crystal_relay.server.rates import Rates
from crystal_relay.server.settings import RelaySettings
from crystal_relay.store import Store


class Mounted(Protocol):
    """An extension in one relay process."""

    def routes(self) -> list[Route]:
        """Its routes. Their paths begin with no segment of the relay's own."""
        ...

    async def aclose(self) -> None:
        """End what runs beside its requests. Idempotent."""
        ...


class OperatorRequests(Protocol):
    """An extension's operator's requests on one open store."""

    def answer(self, request: msgspec.Struct) -> AsyncIterator[msgspec.Struct]:
        """Do what one of `Extension.requests` asks, and give its results. Raises RelayError."""
        ...


class Extension(Protocol):
    """What a relay can serve beside its own routes. An instance has no state: `mount` and `operate` make that."""

    @property
    def name(self) -> str:
        """How the relay's parts find it."""
        ...

    @property
    def service(self) -> str:
        """The service that `/health` names while it is served."""
        ...

    @property
    def mode(self) -> str:
        """The mode that `/health` names while it is served."""
        ...

    @property
    def structs(self) -> Sequence[type[msgspec.Struct]]:
        """The JSON that its OpenAPI paths refer to."""
        ...

    @property
    def security(self) -> dict[str, Any]:
        """Its OpenAPI security schemes, by name."""
        ...

    @property
    def requests(self) -> Sequence[type[msgspec.Struct]]:
        """Its operator's requests, each tagged with a `do` that no other has."""
        ...

    def paths(self) -> dict[str, Any]:
        """Its OpenAPI paths."""
        ...

    def mount(self, store: Store, settings: RelaySettings, rates: Rates, load: Load) -> Mounted:
        """Make its handlers for one relay process."""
        ...

    def operate(self, store: Store, clock: Callable[[], float]) -> OperatorRequests:
        """Make its operator's side on a store. `clock`: unix seconds."""
        ...
