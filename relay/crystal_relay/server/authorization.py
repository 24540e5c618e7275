"""The Authorization header, parsed strictly and checked against the registry.

    Authorization: Bearer <device, 32 hex>.<secret, base64url>     a device, for everything in its vault
    Authorization: Crystal-Recovery <secret, 64 hex>               the root's holder, on the routes of tokens only
    Authorization: Crystal-Invite <mailbox>.<access, 64 hex>       a newcomer, for its mailbox while the invite is open
    Authorization: Bearer <enrolment token>                        to create a vault
    Authorization: Bearer <metrics token>                          to read the metrics

Exactly one header, one space, and these spellings. Credentials never appear in responses or logs. A request with valid
credentials counts here towards the rate limit of its device, before anything else is done for it.
"""

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.types import Scope as Connection

from crystal_relay.errors import Forbidden, InviteOver, Unauthorized, VaultClosed
from crystal_relay.invites import CREDENTIAL, access_hash
from crystal_relay.server.admission import authenticated
from crystal_relay.server.enrollment import new_enrollment_token
from crystal_relay.server.grants import ASK, Grant, Grants
from crystal_relay.server.invites import Invite, Invites
from crystal_relay.server.rates import Rates
from crystal_relay.server.registry import Registry, hash_of
from crystal_relay.server.requests import FIELDS_KEY, KnownFields, head_of, text_of
from crystal_relay.server.scopes import Identity, TokenScope
from crystal_relay.tokens import TOKEN, recovery_hash

_BEARER = "Bearer "
_RECOVERY = "Crystal-Recovery "
_INVITE = f"{CREDENTIAL} "
_INVITE_BYTES = _INVITE.encode()
_NEWCOMER = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{64})\Z")
_RECOVERY_SECRET = re.compile(r"[0-9a-f]{64}\Z")
ENROLL_TOKEN = re.compile(r"[\x21-\x7e]{16,256}\Z")
"""An enrolment token: 16 to 256 visible ASCII characters."""


async def device_of(request: Request, registry: Registry, vault: str, rates: Rates) -> Identity:
    """The device of the request's bearer token. Raises Unauthorized, VaultClosed, TooManyRequests."""
    value = head_of(request.scope).get(b"authorization")
    return await device_of_header(value, registry, vault, rates, request.scope)


async def device_of_header(
    value: bytes | None, registry: Registry, vault: str, rates: Rates, scope: Connection
) -> Identity:
    """The device of the bearer token in an Authorization header's value. Raises as `device_of`."""
    device, token = _shown(value, rates, scope)
    identity = registry.known(vault, device, token)  # §R9.2-3
    if identity is None:
        try:
            with rates.lookup(scope):
                identity = await registry.identify(vault, device, token)
        except (Unauthorized, VaultClosed):
            rates.failed(scope)
            raise
    return _let_in(identity, rates, scope)


def known_device(
    value: bytes | None, registry: Registry, vault: str, rates: Rates, scope: Connection
) -> Identity | None:
    """As `device_of_header` if nothing has to be looked up; else None, and nothing is counted."""
    if value is None or value.startswith(_INVITE_BYTES):
        return None
    fields: KnownFields | None = scope.get(FIELDS_KEY)
    shown = None if fields is None else fields.shown
    if shown is None:
        device, token = _shown(value, rates, scope)
        shown = device, hash_of(token)
        if fields is not None:
            fields.shown = shown
    identity = registry.known_by_hash(vault, *shown)  # §R9.2-3
    return None if identity is None else _let_in(identity, rates, scope)


async def party_of_header(
    value: bytes | None, registry: Registry, invites: Invites, vault: str, rates: Rates, scope: Connection
) -> Identity:
    """A device as in `device_of_header`, or a newcomer whose invite is open. Raises InviteOver too."""
    if value is None or not value.startswith(_INVITE_BYTES):
        return await device_of_header(value, registry, vault, rates, scope)
    mailbox, invite = await _newcomer(value, invites, vault, rates, scope)
    try:
        left = invite.check_open(invites.now)  # §R5-6
    except InviteOver:
        rates.failed(scope)
        raise
    return Identity(vault, f"invite/{mailbox}", frozenset(), mailbox, left)


def shows_invite(scope: Connection) -> bool:
    """Whether the request has a newcomer's credential, valid or not."""
    return (head_of(scope).get(b"authorization") or b"").startswith(_INVITE.encode())


async def newcomer_of(request: Request, invites: Invites, vault: str, mailbox: str, rates: Rates) -> Invite:
    """The newcomer's invite, open or over, for this mailbox. Raises Unauthorized, VaultClosed, TooManyRequests."""
    value = head_of(request.scope).get(b"authorization") or b""
    own, invite = await _newcomer(value, invites, vault, rates, request.scope)
    if own != mailbox:
        rates.failed(request.scope)
        raise Unauthorized("the relay does not know these credentials")
    return invite


@dataclass(frozen=True, slots=True)
class TokenAuthority:
    """The credentials of a request that manages a vault's tokens."""

    vault: str
    token: str | None = field(default=None, repr=False)
    """The device's token; None for the recovery secret."""
    recovery: str = field(default="", repr=False)

    async def confirm(self, registry: Registry) -> None:
        """Check it again in the store. Raises Unauthorized, Forbidden (it no longer leads), VaultClosed."""
        if self.token is None:
            await registry.check_recovery(self.vault, self.recovery)
        else:
            identity = await registry.confirm(self.vault, self.token.partition(".")[0], self.token)
            identity.require(TokenScope.TOKENS)

    @property
    def by_recovery(self) -> bool:
        """Whether it is the current recovery secret."""
        return self.token is None


async def require_token_authority(
    request: Request, registry: Registry, vault: str, rates: Rates
) -> TokenAuthority:
    """Require the scope `tokens` or the recovery secret. Raises Unauthorized, Forbidden."""
    presented = recovery_of(request, rates)  # §R2-5
    if presented is None:
        (await device_of(request, registry, vault, rates)).require(TokenScope.TOKENS)
        header = text_of(head_of(request.scope).get(b"authorization")) or ""
        return TokenAuthority(vault, header.removeprefix(_BEARER))
    try:
        with rates.lookup(request.scope):
            await registry.check_recovery(vault, presented)
    except (Unauthorized, VaultClosed):
        rates.failed(request.scope)
        raise
    authenticated(request.scope)
    return TokenAuthority(vault, None, presented)


def recovery_of(request: Request, rates: Rates) -> str | None:
    """The hash of the request's recovery secret; None if it has none. Raises Unauthorized, TooManyRequests."""
    header = text_of(head_of(request.scope).get(b"authorization")) or ""
    if not header.startswith(_RECOVERY):
        return None
    rates.before_lookup(request.scope)
    secret = header.removeprefix(_RECOVERY)
    if _RECOVERY_SECRET.match(secret) is None:  # §R2-1
        rates.failed(request.scope)
        raise Unauthorized("not a recovery secret")
    return recovery_hash(bytes.fromhex(secret))


async def require_enrollment(request: Request, grants: Grants, rates: Rates) -> Grant:
    """Require an enrolment token. Raises Unauthorized, Forbidden (expired), TooManyRequests."""
    header = text_of(head_of(request.scope).get(b"authorization")) or ""
    token = header.removeprefix(_BEARER) if header.startswith(_BEARER) else ""
    try:
        with rates.lookup(request.scope):
            if ENROLL_TOKEN.match(token) is None:  # §R2-1
                raise Unauthorized(
                    "creating a vault needs this relay's enrolment token",
                    hint=ASK,
                )
            grant = await grants.grant(token)
    except (Unauthorized, Forbidden):
        rates.failed(request.scope)
        raise
    authenticated(request.scope)
    return grant


def require_metrics_token(request: Request, token: str, rates: Rates) -> None:
    """Require the metrics token. Raises Unauthorized, TooManyRequests."""
    header = text_of(head_of(request.scope).get(b"authorization")) or ""
    shown = header.removeprefix(_BEARER) if header.startswith(_BEARER) else ""
    with rates.lookup(request.scope):
        known = hmac.compare_digest(_digest(shown), _digest(token))
    if not known:  # §R7-1
        rates.failed(request.scope)
        raise Unauthorized(
            "reading the metrics needs this relay's metrics token",
            hint="It was set by CRYSTAL_RELAY_METRICS_TOKEN.",
        )
    authenticated(request.scope)


async def ensure_enrollment(registry: Registry, announce: Callable[[str], None]) -> None:
    """Create an enrolment token if the store has none. `announce` is called with it, only once.

    It is announced before its hash is stored: a crash between the two leaves an announced token without effect, and a new one
    at the next start, never a valid one that nobody has seen.
    """
    if await registry.has_enrollment():
        return
    token = new_enrollment_token()
    announce(token)
    await registry.add_enrollment(token)


def _shown(value: bytes | None, rates: Rates, scope: Connection) -> tuple[str, str]:
    """The device and the token. Raises Unauthorized."""
    header = text_of(value) or ""
    match = TOKEN.match(header, len(_BEARER)) if header.startswith(_BEARER) else None  # §R2-1
    if match is None:
        rates.failed(scope)
        raise Unauthorized("a device's token is needed here", hint="Send `Authorization: Bearer <token>`.")
    return match[1], match[0]


def _let_in(identity: Identity, rates: Rates, scope: Connection) -> Identity:
    authenticated(scope)
    rates.check(identity)
    return identity


async def _newcomer(
    value: bytes, invites: Invites, vault: str, rates: Rates, scope: Connection
) -> tuple[str, Invite]:
    rates.before_lookup(scope)
    match = _NEWCOMER.match(text_of(value) or "", len(_INVITE))  # §R2-1
    try:
        if match is None:
            raise Unauthorized("not an invite's credential")
        with rates.lookup(scope):
            invite = await invites.identify(vault, match[1], access_hash(bytes.fromhex(match[2])))
    except (Unauthorized, VaultClosed):
        rates.failed(scope)
        raise
    authenticated(scope)
    rates.check(Identity(vault, f"invite/{match[1]}", frozenset()))
    return match[1], invite


def _digest(token: str) -> bytes:
    # Compared as digests, so that not even the length can be timed.
    return hashlib.sha256(token.encode()).digest()
