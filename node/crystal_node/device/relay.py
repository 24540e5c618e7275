"""The relay as this device uses it: the plain HTTP store, and the store for sync with retries and the bandwidth limit."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from crystal_crypto.invite_code import InviteCode
from crystal_node.base.settings import Settings
from crystal_node.device.own_relay import is_served_here
from crystal_relay.client.http import HttpStore, Timeouts
from crystal_relay.client.invite import InviteStore, fetch_sealed_invite
from crystal_relay.decorators import Pace, PacedStore, RetryingStore, RetryPolicy
from crystal_relay.embedded.transport import URL as OWN_URL
from crystal_relay.embedded.transport import EmbeddedTransport
from crystal_relay.errors import BadRequest
from crystal_relay.store import Store

CONNECT_SECONDS_MAX = 5.0
_POLICY = RetryPolicy(tries=3)
"""A relay that hangs is given up after three timeouts; sync as a whole is retried later."""

TOKEN_SECONDS_MAX = 30.0
"""How long a token is used before the key store is read again, so that a new pairing reaches a running watcher."""

Token = str | Callable[[], str]


class FreshToken:
    """This device's token, read again from the key store from time to time."""

    def __init__(self, load: Callable[[], str | None], first: str) -> None:
        self._load = load
        self._token = first
        self._loaded_at = time.monotonic()

    def __call__(self) -> str:
        now = time.monotonic()
        if now - self._loaded_at > TOKEN_SECONDS_MAX:
            self._loaded_at = now
            self._token = self._load() or self._token
        return self._token


PLAIN_HTTP_HINT = (
    "Use an https:// address. On a network that you trust, such as a VPN: CRYSTAL_RELAY_ALLOW_HTTP=yes, "
    "or relay_allow_http in config.json."
)


@asynccontextmanager
async def open_http(settings: Settings, *, vault: bytes, token: Token) -> AsyncGenerator[HttpStore, None]:
    """The plain client, for managing vaults and tokens. Raises BadRequest if the address cannot be used."""
    own = own_relay(settings)
    try:
        store = HttpStore(
            settings.relay_url if own is None else OWN_URL,
            vault=vault,
            token=token,
            transport=own,
            timeouts=_timeouts(settings),
            allow_insecure=settings.allow_http,
            # A bucket's signature lasts minutes and its bodies are sent at full speed; the relay accepts slow ones.
            direct=own is None and not (settings.bandwidth_up or settings.bandwidth_down),
        )
    except BadRequest as error:
        raise _with_hint(error, settings) from error
    try:
        yield store
    finally:
        await store.aclose()


def invite_store(settings: Settings, code: InviteCode) -> InviteStore:
    """The newcomer's client for an invite's mailbox, closed by the caller. Raises BadRequest as ``open_http``."""
    try:
        return InviteStore(
            settings.relay_url,
            vault=code.vault,
            mailbox=code.mailbox,
            access=code.access,
            timeouts=_timeouts(settings),
            policy=_POLICY,
            allow_insecure=settings.allow_http,
        )
    except BadRequest as error:
        raise _with_hint(error, settings) from error


async def sealed_invite(settings: Settings, place: bytes) -> bytes:
    """What lies at a short invite's place, as anybody gets it. Raises BadRequest as ``open_http``, and errors of the relay."""
    try:
        return await fetch_sealed_invite(
            settings.relay_url, place, timeouts=_timeouts(settings), allow_insecure=settings.allow_http
        )
    except BadRequest as error:
        raise _with_hint(error, settings) from error


@asynccontextmanager
async def open_store(settings: Settings, *, vault: bytes, token: Token) -> AsyncGenerator[Store, None]:
    """The store for sync: retries passing failures, and keeps to the bandwidth limit."""
    async with open_http(settings, vault=vault, token=token) as http:
        paced = PacedStore(http, up=Pace(settings.bandwidth_up), down=Pace(settings.bandwidth_down))
        yield RetryingStore(paced, policy=_POLICY)


def own_relay(settings: Settings) -> EmbeddedTransport | None:
    """The way to the relay in this home, if that is this device's."""
    directory = settings.home.relay
    if not settings.relay_is_local:
        return None
    return EmbeddedTransport(directory, serves=not is_served_here(directory))


def own_enrolment_token(settings: Settings) -> str:
    """The token that makes vaults at the relay in this home. Raises BadRequest."""
    from crystal_relay.embedded.relay import enroll_token

    return enroll_token(settings.home.relay)


def _timeouts(settings: Settings) -> Timeouts:
    return Timeouts(connect=min(CONNECT_SECONDS_MAX, settings.relay_timeout), idle=settings.relay_timeout)


def _with_hint(error: BadRequest, settings: Settings) -> BadRequest:
    """The error with a hint for the common case: plain HTTP to another machine."""
    if not settings.relay_url.startswith("http://"):
        return error
    return BadRequest(str(error), hint=PLAIN_HTTP_HINT)
