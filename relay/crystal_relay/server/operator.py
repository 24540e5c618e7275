"""The operator's actions: list vaults, limit, export, drop and restore them, manage enrolment, test the store.

`Operations` is the port. `Operator` does it on a store that this process has open; `server.admin` carries it to a relay
that has the store's directory to itself. A vault is known by its opaque id and its size here; its objects are read for an
export only, as sealed as they are.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from crystal_relay.errors import BadRequest, NotFound
from crystal_relay.keys import check_vault
from crystal_relay.server.check import CheckReport, check_store
from crystal_relay.server.enrollment import Enrollment, EnrollmentRecord, Enrollments, EnrollmentState
from crystal_relay.server.export import ExportPiece, export_pieces
from crystal_relay.server.extension import Extension
from crystal_relay.server.grants import Grants
from crystal_relay.server.last_used import LastUsed
from crystal_relay.server.overview import AT_ONCE, TOKENS, USES, VAULTS, Overview
from crystal_relay.server.registry import Registry
from crystal_relay.server.sweeper import Sweeper
from crystal_relay.server.usage import count_usage
from crystal_relay.server.vault_terms import Terms, VaultAccess, VaultTerms
from crystal_relay.store import Store

Result = TypeVar("Result", bound=msgspec.Struct)

GRACE_SECONDS_MAX = 366 * 24 * 3600


class VaultSummary(msgspec.Struct, frozen=True):
    """A vault's id and size. `dropped_until` is in Unix seconds, None if it is in use. `token` and `created`: by which
    enrolment token it came and when (Unix seconds), "" and 0 if an older relay made it. `quota_bytes`: its own, 0 for the
    relay's. `last_used`: the day, in UTC, as YYYY-MM-DD, "" if unknown. `access` and `reason`: as the operator set them."""

    vault: str
    entries: int
    bytes: int
    dropped_until: int | None
    token: str = ""
    created: int = 0
    quota_bytes: int = 0
    last_used: str = ""
    access: VaultAccess = VaultAccess.OPEN
    reason: str = ""


class TermsState(msgspec.Struct, frozen=True):
    """The operator's terms for a vault, as in `VaultSummary`. `quota_bytes`: 0 for what it came with. `not_told` as below."""

    vault: str
    access: VaultAccess
    reason: str
    quota_bytes: int
    not_told: int = 0


class VaultState(msgspec.Struct, frozen=True):
    """Whether a vault is dropped, as in `VaultSummary`.

    `not_told`: number of other processes that could not be reached. Running ones learn of it within five minutes.
    """

    vault: str
    dropped_until: int | None
    not_told: int = 0


class SweepReport(msgspec.Struct, frozen=True):
    """Result of a sweep: objects deleted by kind of record, failures of the store, seconds."""

    deleted: dict[str, int]
    failures: int
    seconds: float


class Operations(Protocol):
    """Actions of an operator. All raise BadRequest for an invalid id, NotFound for an unknown one, and errors of the store."""

    def vaults(self) -> AsyncIterator[VaultSummary]:
        """Every vault, in order of ids. Lists every object: one store operation for each 1,000."""
        ...

    async def vault(self, vault: str) -> VaultSummary:
        """One vault."""
        ...

    async def drop(self, vault: str, grace_seconds: int) -> VaultState:
        """Refuse the vault's devices now; the sweeper deletes it after the grace period."""
        ...

    async def restore(self, vault: str) -> VaultState:
        """Restore a dropped vault within its grace period."""
        ...

    async def set_access(self, vault: str, access: VaultAccess, reason: str) -> TermsState:
        """Suspend a vault, make it read-only, or open it again. `reason` is shown to its people."""
        ...

    async def set_quota(self, vault: str, quota_bytes: int) -> TermsState:
        """Set a vault's quota, 0 for the one that it came with."""
        ...

    def export(self, vault: str) -> AsyncIterator[ExportPiece]:
        """All sealed objects of a vault."""
        ...

    async def set_enrollment(self, *, closed: bool) -> EnrollmentState:
        """Refuse new vaults, whatever token they come with, or take them again."""
        ...

    async def enrollment(self) -> EnrollmentState:
        """Whether new vaults are refused."""
        ...

    async def enroll(
        self, token_hash: str, label: str, *, uses: int = 0, lives_seconds: int = 0, quota_bytes: int = 0
    ) -> Enrollment:
        """Add an enrolment token by its hash. Its limits are as in `EnrollmentRecord`; `lives_seconds`: 0 for ever."""
        ...

    async def enrollments(self) -> list[Enrollment]:
        """All enrolment tokens, oldest first."""
        ...

    async def revoke_enrollment(self, name: str) -> Enrollment:
        """Revoke an enrolment token by its id."""
        ...

    def extended(self, request: msgspec.Struct, kind: type[Result]) -> AsyncIterator[Result]:
        """Carry out an extension's request, with results of this kind."""
        ...

    async def check(self) -> CheckReport:
        """Test the store."""
        ...

    async def sweep(self) -> SweepReport:
        """Delete now what is due."""
        ...


class Operator:
    """`Operations` on an open store.

    `registry`, `sweeper`: those of the relay in this process, if any. `changed` is called with each vault whose state has
    changed; it notifies other processes, and returns how many could not be told.
    """

    def __init__(
        self,
        store: Store,
        *,
        registry: Registry | None = None,
        sweeper: Sweeper | None = None,
        changed: Callable[[str], Awaitable[int]] | None = None,
        forget: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.time,
        extensions: Sequence[Extension] = (),
    ) -> None:
        """`forget` drops what this process's relay remembers of a vault."""
        self._store = store
        self._registry = registry or Registry(store, cache_seconds=0, wall_clock=clock)
        self._sweeper = sweeper or Sweeper(store, clock=clock)
        self._enrollments = Enrollments(store)
        self._grants = Grants(store, self._registry, only=None, clock=clock)
        self._extended = {
            request: requests
            for extension in extensions
            for requests in (extension.operate(store, clock),)
            for request in extension.requests
        }
        self._changed = changed
        self._forget = forget or self._registry.forget
        self._terms = VaultTerms(store, clock=clock)
        self._used = LastUsed(store, clock=clock)
        self._clock = clock

    async def vaults(self) -> AsyncIterator[VaultSummary]:
        overview = await Overview.read(self._store, VAULTS, with_usage=True)
        reader, vaults = Operator(overview, clock=self._clock), overview.vaults()
        for at in range(0, len(vaults), AT_ONCE):
            for summary in await asyncio.gather(*map(reader._summary, vaults[at : at + AT_ONCE])):
                yield summary
        await overview.save_index()

    async def vault(self, vault: str) -> VaultSummary:
        await self._require(vault)
        return await self._summary(vault)

    async def drop(self, vault: str, grace_seconds: int) -> VaultState:
        grace = check_grace(grace_seconds)
        await self._require(vault)
        until = await self._registry.drop_vault(vault, self._clock() + grace)
        return VaultState(vault, until, await self._tell(vault))

    async def restore(self, vault: str) -> VaultState:
        await self._require(vault)
        await self._registry.restore_vault(vault)
        return VaultState(vault, None, await self._tell(vault))

    async def set_access(self, vault: str, access: VaultAccess, reason: str) -> TermsState:
        await self._require(vault)
        return await self._shown(vault, await self._terms.set_access(vault, access, reason))

    async def set_quota(self, vault: str, quota_bytes: int) -> TermsState:
        await self._require(vault)
        return await self._shown(vault, await self._terms.set_quota(vault, quota_bytes))

    async def export(self, vault: str) -> AsyncIterator[ExportPiece]:
        await self._require(vault)
        async for piece in export_pieces(self._store, vault):
            yield piece

    async def set_enrollment(self, *, closed: bool) -> EnrollmentState:
        return await self._enrollments.set_closed(closed, now=int(self._clock()))

    async def enrollment(self) -> EnrollmentState:
        return await self._enrollments.state()

    async def enroll(
        self, token_hash: str, label: str, *, uses: int = 0, lives_seconds: int = 0, quota_bytes: int = 0
    ) -> Enrollment:
        now = int(self._clock())
        expires = now + lives_seconds if lives_seconds else 0
        return await self._enrollments.add(
            token_hash, EnrollmentRecord(label, now, uses, expires, quota_bytes)
        )

    async def enrollments(self) -> list[Enrollment]:
        overview = await Overview.read(self._store, TOKENS, USES)
        found = await Enrollments(overview).all()
        await overview.save_index()
        return sorted(found, key=lambda each: (each.created, each.id))

    async def revoke_enrollment(self, name: str) -> Enrollment:
        return await self._enrollments.revoke(name)

    async def extended(self, request: msgspec.Struct, kind: type[Result]) -> AsyncIterator[Result]:
        async for result in self._extended[type(request)].answer(request):
            assert isinstance(result, kind), f"{type(request).__name__} is answered by {kind.__name__}"
            yield result

    async def check(self) -> CheckReport:
        return await check_store(self._store)

    async def sweep(self) -> SweepReport:
        began = time.monotonic()
        swept = await self._sweeper.run()
        return SweepReport(dict(swept.deleted), swept.failures, round(time.monotonic() - began, 3))

    # --- inside ---

    async def _require(self, vault: str) -> None:
        if not await self._registry.has_vault(check_vault(vault)):
            raise NotFound("there is no such vault", hint="`crystal-relay vaults` lists them.")

    async def _summary(self, vault: str) -> VaultSummary:
        store = self._store
        # One after the other: for nearly all vaults an overview has everything, and tasks would cost more than that.
        usage = store.usage(vault) if isinstance(store, Overview) else await count_usage(store, vault)
        origin, until = await self._grants.origin(vault), await self._registry.dropped_until(vault)
        terms, used = await self._terms.of(vault), await self._used.day(vault)
        return VaultSummary(
            vault,
            usage.entries,
            usage.bytes,
            until,
            origin.token,
            origin.created,
            terms.quota_bytes or origin.quota_bytes,
            used,
            terms.access,
            terms.reason,
        )

    async def _shown(self, vault: str, terms: Terms) -> TermsState:
        return TermsState(vault, terms.access, terms.reason, terms.quota_bytes, await self._tell(vault))

    async def _tell(self, vault: str) -> int:
        self._forget(vault)
        return await self._changed(vault) if self._changed is not None else 0


def check_grace(seconds: int) -> int:
    """Return a valid grace period. Raises BadRequest."""
    if not 0 <= seconds <= GRACE_SECONDS_MAX:
        raise BadRequest(f"a grace period has at most {GRACE_SECONDS_MAX // 86400} days")
    return seconds
