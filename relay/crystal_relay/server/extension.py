"""The port for additional routes and operator's requests, such as the published prototype's.

`crystal_relay.cli.extensions` lists those that ship. The relay's own modules know none of them by name.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_relay.errors import RelayError
from crystal_relay.server.load import Load
from crystal_relay.server.rates import Rates
from crystal_relay.server.settings import RelaySettings
from crystal_relay.server.usage import RelayUsage
from crystal_relay.store import Store


class Mounted(Protocol):
    """An extension in one relay process."""

    def routes(self) -> list[Route]:
        """Its routes. Their paths begin with no segment of the relay's own."""
        ...

    def refusal(self, request: Request, error: RelayError, headers: Mapping[str, str]) -> Response:
        """The answer to a request outside of `/v2/` that no route takes, in the form that its clients know."""
        ...

    async def aclose(self) -> None:
        """End its background tasks. Idempotent."""
        ...


class OperatorRequests(Protocol):
    """An extension's operator's requests on one open store."""

    def answer(self, request: msgspec.Struct) -> AsyncIterator[msgspec.Struct]:
        """Carry out one of `Extension.requests` and yield its results. Raises RelayError."""
        ...


class Extension(Protocol):
    """Routes that a relay serves beside its own. An instance has no state: `mount` and `operate` create it."""

    @property
    def name(self) -> str:
        """The name by which the relay's parts find it."""
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
        """The structs that its OpenAPI paths refer to."""
        ...

    @property
    def security(self) -> dict[str, Any]:
        """Its OpenAPI security schemes, by name."""
        ...

    @property
    def requests(self) -> Sequence[type[msgspec.Struct]]:
        """Its operator's requests, each tagged with a unique `do`."""
        ...

    def paths(self) -> dict[str, Any]:
        """Its OpenAPI paths."""
        ...

    @property
    def objects_prefix(self) -> str:
        """The prefix of what its clients store, which counts towards the relay's cap."""
        ...

    def mount(
        self, store: Store, settings: RelaySettings, rates: Rates, load: Load, cap: RelayUsage | None = None
    ) -> Mounted:
        """Create its handlers for one relay process. `cap`: of the relay, if it has one."""
        ...

    def operate(self, store: Store, clock: Callable[[], float]) -> OperatorRequests:
        """Create its operator's side on a store. `clock`: Unix seconds."""
        ...
