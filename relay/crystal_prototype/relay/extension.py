"""The prototype's routes and tokens as an extension of the relay."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
from msgspec import structs

from crystal_prototype.relay.drops import Drops, Held
from crystal_prototype.relay.names import SPACES_PREFIX, Role
from crystal_prototype.relay.openapi import V1_SECURITY, V1_STRUCTS, v1_paths
from crystal_prototype.relay.routes import V1Routes
from crystal_prototype.relay.tokens import Tokens, V1Token
from crystal_relay.server.extension import Extension
from crystal_relay.server.load import Load
from crystal_relay.server.rates import Rates
from crystal_relay.server.settings import RelaySettings
from crystal_relay.server.usage import RelayUsage
from crystal_relay.store import Store
from crystal_relay.wire import V1_MODE, V1_SERVICE

HOUR_MS = 3_600_000


class LetIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="let-v1-in"):
    """Register a device of the prototype by its token's hash. Answered by its `V1Token`."""

    token_hash: str
    agent_id: str
    role: Role
    space: str


class ListTokens(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="v1-tokens"):
    """List all tokens of such devices by space, including revoked ones. Answered by a `V1Token` for each."""


class Revoke(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="revoke-v1"):
    """Revoke such a device by its token's id; drops are no longer kept for it. Answered by its `V1Token`."""

    name: str


class V1Operator:
    """The operator's requests on an open store."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._tokens = Tokens(store)
        self._drops = Drops(store, self._tokens, clock=clock)

    async def answer(self, request: msgspec.Struct) -> AsyncIterator[msgspec.Struct]:
        """Carry out a request and yield its results."""
        match request:
            case LetIn(token_hash, agent, role, space):
                yield V1Token.of(await self._tokens.add(token_hash, agent, role, space))
            case ListTokens():
                held: dict[str, dict[str, Held]] = {}
                async for member in self._tokens.members():
                    holder = member.holder
                    if holder.space not in held:
                        held[holder.space] = await self._drops.held(holder.space)
                    waiting = held[holder.space].get(holder.id, Held())
                    presence = await self._drops.presence_of(holder)
                    yield structs.replace(
                        V1Token.of(holder, revoked=member.revoked),
                        read_at=presence.at,
                        waiting=waiting.drops,
                        waiting_bytes=waiting.bytes,
                        missed=presence.missed,
                    )
            case Revoke(name):
                yield V1Token.of(await self._drops.revoke(name), revoked=True)
            case _:
                raise TypeError(f"{type(request).__name__} is none of this extension's requests")


class _Prototype:
    """`crystal_relay.server.extension.Extension`."""

    def __init__(self, expire_hours: int = 0) -> None:
        self._expire_ms = expire_hours * HOUR_MS

    name = "v1"
    service = V1_SERVICE
    mode = V1_MODE
    structs: Sequence[type[msgspec.Struct]] = V1_STRUCTS
    security: dict[str, Any] = V1_SECURITY
    objects_prefix = SPACES_PREFIX
    requests: Sequence[type[msgspec.Struct]] = (LetIn, ListTokens, Revoke)

    def paths(self) -> dict[str, Any]:
        return v1_paths()

    def mount(
        self, store: Store, settings: RelaySettings, rates: Rates, load: Load, cap: RelayUsage | None = None
    ) -> V1Routes:
        return V1Routes(store, settings, rates, load=load, expire_ms=self._expire_ms, cap=cap)

    def operate(self, store: Store, clock: Callable[[], float]) -> V1Operator:
        return V1Operator(store, clock)


PROTOTYPE: Extension = _Prototype()


def expiring(hours: int) -> Extension:
    """The same with drops that are deleted after so many hours, read or not; 0 for never."""
    return _Prototype(hours)
