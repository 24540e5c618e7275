"""Who asks: the Authorization header, parsed strictly, and checked against the registry.

    Authorization: Bearer <device, 32 hex>.<secret, base64url>     a device, for everything in its vault
    Authorization: Crystal-Recovery <secret, 64 hex>               the root's holder, on the routes of tokens only
    Authorization: Crystal-Invite <mailbox>.<access, 64 hex>       a newcomer, for its mailbox while the invite is open
    Authorization: Bearer <enrolment token>                        to create a vault
    Authorization: Bearer <metrics token>                          to read the metrics

Exactly one header, exactly one space, exactly these spellings. Nothing that was presented is ever repeated, in answers
or in logs. Every request is counted here, of its address and of its device, before anything is done for it.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.types import Scope as Connection

from crystal_relay.errors import InviteOver, Unauthorized, VaultDropped
from crystal_relay.invites import CREDENTIAL, access_hash
from crystal_relay.server.invites import Invite, Invites
from crystal_relay.server.rates import Rates
from crystal_relay.server.registry import Registry
from crystal_relay.server.requests import head_of, text_of
from crystal_relay.server.scopes import Identity, TokenScope
from crystal_relay.tokens import TOKEN, recovery_hash

_BEARER = "Bearer "
_RECOVERY = "Crystal-Recovery "
_INVITE = f"{CREDENTIAL} "
_NEWCOMER = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{64})\Z")
_RECOVERY_SECRET = re.compile(r"[0-9a-f]{64}\Z")
ENROLL_TOKEN = re.compile(r"[\x21-\x7e]{16,256}\Z")
"""What may be an enrolment token: 16 to 256 visible ASCII characters."""


async def device_of(request: Request, registry: Registry, vault: str, rates: Rates) -> Identity:
    """The device whose bearer token the request shows. Raises Unauthorized, VaultDropped, TooManyRequests."""
    value = head_of(request.scope).get(b"authorization")
    return await device_of_header(value, registry, vault, rates, request.scope)


async def device_of_header(
    value: bytes | None, registry: Registry, vault: str, rates: Rates, scope: Connection
) -> Identity:
    """The device whose bearer token an Authorization header's value holds. Raises as `device_of`."""
    rates.admit(scope)
    header = text_of(value) or ""
    match = TOKEN.match(header, len(_BEARER)) if header.startswith(_BEARER) else None  # §R2-1
    if match is None:
        rates.failed(scope)
        raise Unauthorized("a device's token is needed here", hint="Send `Authorization: Bearer <token>`.")
    identity = registry.known(vault, match[1], match[0])  # §R9.2-3
    if identity is None:
        rates.before_lookup(scope)
        try:
            identity = await registry.identify(vault, match[1], match[0])
        except (Unauthorized, VaultDropped):
            rates.failed(scope)
            raise
    rates.check(identity)
    return identity


async def party_of_header(
    value: bytes | None, registry: Registry, invites: Invites, vault: str, rates: Rates, scope: Connection
) -> Identity:
    """A device as `device_of_header` has it, or a newcomer whose invite is open. Raises InviteOver too."""
    if value is None or not value.startswith(_INVITE.encode()):
        return await device_of_header(value, registry, vault, rates, scope)
    mailbox, invite = await _newcomer(value, invites, vault, rates, scope)
    try:
        left = invite.check_open(invites.now)  # §R5-6
    except InviteOver:
        rates.failed(scope)
        raise
    return Identity(vault, f"invite/{mailbox}", frozenset(), mailbox, left)


def shows_invite(scope: Connection) -> bool:
    """Whether it is a newcomer's credential that the request shows, whatever it is worth."""
    return (head_of(scope).get(b"authorization") or b"").startswith(_INVITE.encode())


async def newcomer_of(request: Request, invites: Invites, vault: str, mailbox: str, rates: Rates) -> Invite:
    """The newcomer's invite, open or over, if it is that mailbox's. Raises Unauthorized, VaultDropped, TooManyRequests."""
    value = head_of(request.scope).get(b"authorization") or b""
    own, invite = await _newcomer(value, invites, vault, rates, request.scope)
    if own != mailbox:
        rates.failed(request.scope)
        raise Unauthorized("the relay does not know these credentials")
    return invite


@dataclass(frozen=True, slots=True)
class TokenAuthority:
    """What a request that manages a vault's tokens has shown."""

    vault: str
    token: str | None = field(default=None, repr=False)
    """A device's; None: it was the recovery secret."""
    recovery: str = field(default="", repr=False)

    async def confirm(self, registry: Registry) -> None:
        """Look it up anew. Raises Unauthorized, Forbidden (it leads no more), VaultDropped."""
        if self.token is None:
            await registry.check_recovery(self.vault, self.recovery)
        else:
            identity = await registry.confirm(self.vault, self.token.partition(".")[0], self.token)
            identity.require(TokenScope.TOKENS)

    @property
    def by_recovery(self) -> bool:
        """Whether it was the recovery secret that counts."""
        return self.token is None


async def require_token_authority(
    request: Request, registry: Registry, vault: str, rates: Rates
) -> TokenAuthority:
    """Raises Unauthorized, Forbidden unless the request may manage the vault's tokens: by scope, or by the recovery secret."""
    presented = recovery_of(request, rates)  # §R2-5
    if presented is None:
        (await device_of(request, registry, vault, rates)).require(TokenScope.TOKENS)
        header = text_of(head_of(request.scope).get(b"authorization")) or ""
        return TokenAuthority(vault, header.removeprefix(_BEARER))
    try:
        await registry.check_recovery(vault, presented)
    except (Unauthorized, VaultDropped):
        rates.failed(request.scope)
        raise
    return TokenAuthority(vault, None, presented)


def recovery_of(request: Request, rates: Rates) -> str | None:
    """The hash of the recovery secret that the request shows; None: it shows none. Raises Unauthorized, TooManyRequests."""
    header = text_of(head_of(request.scope).get(b"authorization")) or ""
    if not header.startswith(_RECOVERY):
        return None
    rates.admit(request.scope)
    rates.before_lookup(request.scope)
    secret = header.removeprefix(_RECOVERY)
    if _RECOVERY_SECRET.match(secret) is None:  # §R2-1
        rates.failed(request.scope)
        raise Unauthorized("not a recovery secret")
    return recovery_hash(bytes.fromhex(secret))


async def require_enrollment(request: Request, registry: Registry, only: str | None, rates: Rates) -> None:
    """Raises Unauthorized unless the request shows an enrolment token: `only`, or with None one that the store knows."""
    rates.admit(request.scope)
    rates.before_lookup(request.scope)
    header = text_of(head_of(request.scope).get(b"authorization")) or ""
    token = header.removeprefix(_BEARER) if header.startswith(_BEARER) else ""
    if ENROLL_TOKEN.match(token) is not None:  # §R2-1
        if only is None:
            if await registry.is_enrollment(token):
                return
        elif hmac.compare_digest(_digest(token), _digest(only)):
            return
    rates.failed(request.scope)
    raise Unauthorized(
        "creating a vault needs this relay's enrolment token",
        hint="It was printed at the relay's first start, or set by CRYSTAL_RELAY_ENROLL_TOKEN.",
    )


def require_metrics_token(request: Request, token: str, rates: Rates) -> None:
    """Raises Unauthorized unless the request shows the token for the metrics; TooManyRequests."""
    rates.admit(request.scope)
    rates.before_lookup(request.scope)
    header = text_of(head_of(request.scope).get(b"authorization")) or ""
    shown = header.removeprefix(_BEARER) if header.startswith(_BEARER) else ""
    if not hmac.compare_digest(_digest(shown), _digest(token)):  # §R7-1
        rates.failed(request.scope)
        raise Unauthorized(
            "reading the metrics needs this relay's metrics token",
            hint="It was set by CRYSTAL_RELAY_METRICS_TOKEN.",
        )


async def ensure_enrollment(registry: Registry, announce: Callable[[str], None]) -> None:
    """Make an enrolment token if the store knows none. `announce` is given it, this once.

    It is announced first and kept then: a crash between the two leaves a dead token and a new one at the next start,
    never a live one that nobody has seen.
    """
    if await registry.has_enrollment():
        return
    token = secrets.token_urlsafe(32)
    announce(token)
    await registry.add_enrollment(token)


async def _newcomer(
    value: bytes, invites: Invites, vault: str, rates: Rates, scope: Connection
) -> tuple[str, Invite]:
    rates.admit(scope)
    rates.before_lookup(scope)
    match = _NEWCOMER.match(text_of(value) or "", len(_INVITE))  # §R2-1
    try:
        if match is None:
            raise Unauthorized("not an invite's credential")
        invite = await invites.identify(vault, match[1], access_hash(bytes.fromhex(match[2])))
    except (Unauthorized, VaultDropped):
        rates.failed(scope)
        raise
    rates.check(Identity(vault, f"invite/{match[1]}", frozenset()))
    return match[1], invite


def _digest(token: str) -> bytes:
    # Compared as digests, so that not even the length can be timed.
    return hashlib.sha256(token.encode()).digest()
