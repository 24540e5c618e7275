"""Founding a vault with an enrolment token, within the token's limits.

    r/enrolled/<token's hash>/<number, 6 digits>     one use of a token with a number of uses: {"vault"}
    r/enrolled/<token's hash>/<vault>                one use of a token with any number of them
    r/enrolling/<token's hash>/<vault>               the vault began to claim a use of a token with a number of uses
    r/vault/<vault>/origin                           by which token the vault came, when, and its quota

A use is claimed first, then the vault is created, then its origin is written, and then its first token: so the quota is there
before anything is stored. A crash in between costs at most one use, and the same request again finds that use and completes it:
the mark of the vault says that there may be one, so that other foundings read no uses. A use is never
given back: of two who found one vault at once, with the use that one of them has claimed, the other one may have succeeded.
"""

import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from crystal_relay.errors import AlreadyExists, Forbidden, NotFound, Unauthorized
from crystal_relay.server.enrollment import (
    ID_CHARS,
    EnrollmentRecord,
    Enrollments,
    begun_prefix,
    day_of,
    enrollment_hash,
    enrollment_key,
    uses_prefix,
)
from crystal_relay.server.records import Records
from crystal_relay.server.registry import Registry
from crystal_relay.server.vault_terms import VaultTerms
from crystal_relay.store import Store
from crystal_relay.wire import VaultCreation

ENVIRONMENT = "environment"
"""In a vault's origin, for the token that the relay was started with."""
ASK = "Ask the relay's operator for one: `crystal-relay tokens create` makes it."


class Origin(msgspec.Struct, frozen=True):
    """How a vault came. `token` is the id of its enrolment token, `created` in Unix seconds, `quota_bytes` 0 for the
    relay's."""

    token: str = ""
    created: int = 0
    quota_bytes: int = 0


class _Use(msgspec.Struct, frozen=True):
    vault: str


@dataclass(frozen=True, slots=True)
class Grant:
    """A valid enrolment token. `token_hash` is "" for the one of the environment."""

    token_hash: str
    record: EnrollmentRecord


class Grants:
    """What enrolment tokens allow, and what became of it. Over one store."""

    def __init__(
        self, store: Store, registry: Registry, *, only: str | None, clock: Callable[[], float] = time.time
    ) -> None:
        """`only`: the environment's token, valid beside those of the store."""
        self._records = Records(store)
        self._registry = registry
        self._only = None if only is None else enrollment_hash(only)
        self._clock = clock
        self._enrollments = Enrollments(store)
        self._terms = VaultTerms(store, clock=clock)

    def accept_only(self, token: str) -> None:
        """Another token takes the place of the environment's. From any thread."""
        self._only = enrollment_hash(token)

    async def grant(self, token: str) -> Grant:
        """What a token allows. Raises Unauthorized (unknown), Forbidden (expired), StoreDamaged."""
        name = enrollment_hash(token)
        if self._only is not None and hmac.compare_digest(name, self._only):
            return Grant("", EnrollmentRecord())
        try:
            record = await self._records.read(enrollment_key(name), EnrollmentRecord)
        except NotFound:
            raise Unauthorized("creating a vault needs this relay's enrolment token", hint=ASK) from None
        if record.expires and record.expires <= self._clock():  # §R4.1-5
            raise Forbidden(f"this enrolment token expired on {day_of(record.expires)}", hint=ASK)
        return Grant(name, record)

    async def found(self, creation: VaultCreation, grant: Grant, *, created: bool) -> None:
        """Create a vault with its first token. Idempotent.

        `created`: its record was there, so that no proof was asked for. Raises as `Registry.create_vault`; Forbidden (used
        up).
        """
        if not created:
            await self._claim(creation.vault, grant)

        async def note() -> None:
            # A vault that another token has made, or an older relay, does not get this one's quota.
            if not created or await self._has_use(creation.vault, grant):
                await self._note(creation.vault, grant)

        await self._registry.create_vault(creation, created=created, before_token=note)

    async def origin(self, vault: str) -> Origin:
        """How a vault came; without a word for one of an older relay. Raises StoreDamaged."""
        try:
            return await self._records.read(_origin_key(vault), Origin)
        except NotFound:
            return Origin()

    async def quota_bytes(self, vault: str) -> int:
        """The vault's own quota: the operator's for it, else its token's; 0 for the relay's."""
        return (await self._terms.of(vault)).quota_bytes or (await self.origin(vault)).quota_bytes

    async def check_open(self) -> None:
        """Raise EnrollmentClosed if the operator takes no new vaults."""
        await self._enrollments.check_open()

    # --- inside ---

    async def _claim(self, vault: str, grant: Grant) -> None:
        """Claim a use of the token for this vault, unless one is. Raises Forbidden."""
        if not grant.token_hash:
            return
        prefix = uses_prefix(grant.token_hash)
        if not grant.record.uses:
            await self._records.mark(prefix + vault)
            return
        taken = await self._records.names(prefix)
        # Marked only while there is room, so that a used-up token fills no store.
        if (
            len(taken) < grant.record.uses
            and await self._began(vault, grant)
            and await self._is_among(vault, prefix, taken)
        ):
            return
        for number in range(len(taken), grant.record.uses):  # §R4.1-5
            name = f"{number:06d}"
            try:
                await self._records.put_new(prefix + name, _Use(vault))
            except AlreadyExists:
                taken.append(name)
                continue
            return
        if not await self._is_among(vault, prefix, taken):  # of a try that broke off, or still goes on
            raise Forbidden(
                f"this enrolment token was good for {grant.record.uses} vault{'s' * (grant.record.uses > 1)}, and is used up",
                hint=ASK,
            )

    async def _began(self, vault: str, grant: Grant) -> bool:
        """Mark that the vault claims a use. Returns whether it had begun before."""
        try:
            await self._records.put_new(begun_prefix(grant.token_hash) + vault, _Use(vault))
        except AlreadyExists:
            return True
        return False

    async def _has_use(self, vault: str, grant: Grant) -> bool:
        """Whether a use of the token was claimed for this vault. Always true of the environment's."""
        if not grant.token_hash:
            return True
        prefix = uses_prefix(grant.token_hash)
        if not grant.record.uses:
            return await self._records.has(prefix + vault)
        return await self._is_among(vault, prefix, await self._records.names(prefix))

    async def _is_among(self, vault: str, prefix: str, names: list[str]) -> bool:
        for name in names:
            try:
                if (await self._records.read(prefix + name, _Use)).vault == vault:
                    return True
            except NotFound:
                continue
        return False

    async def _note(self, vault: str, grant: Grant) -> None:
        token = grant.token_hash[:ID_CHARS] or ENVIRONMENT
        origin = Origin(token, int(self._clock()), grant.record.quota_bytes)
        try:
            await self._records.put_new(_origin_key(vault), origin)
        except AlreadyExists:
            return


def _origin_key(vault: str) -> str:
    return f"r/vault/{vault}/origin"
