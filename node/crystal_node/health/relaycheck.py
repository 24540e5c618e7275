"""Whether the relay can be reached from here, lets this device in, and has the same time as this machine."""

import asyncio
import http
from email.utils import parsedate_to_datetime

import httpx

from crystal_node.clock import now_ms
from crystal_node.errors import ExitCode
from crystal_node.health.doctor import Check, State
from crystal_node.relaystore import CONNECT_SECONDS_MAX
from crystal_node.settings import Settings
from crystal_relay.address import check_relay_url, http_client

CLOCK_SECONDS_MAX = 60.0
"""Nothing is decided by clocks; invites and what people read as times are, and a clock far off breaks TLS."""


def relay_checks(settings: Settings) -> list[Check]:
    """One request to the relay's health page; it needs no token."""
    if not settings.relay_url:
        fix = "Join again with `crystal pair`, or set CRYSTAL_RELAY_URL."
        return [Check("relay", State.FAILED, "this device has no relay", fix, ExitCode.NOT_SET_UP)]
    return asyncio.run(_ask(settings))


async def _ask(settings: Settings) -> list[Check]:
    url = check_relay_url(settings.relay_url, allow_insecure=settings.allow_http)
    seconds = settings.relay_timeout
    client = http_client(url, connect=min(CONNECT_SECONDS_MAX, seconds), idle=seconds, connections_kept=1)
    before = now_ms()
    try:
        async with client, client.stream("GET", "/health") as reply:
            status, date = reply.status_code, reply.headers.get("Date", "")
    except httpx.HTTPError as error:
        what = f"the relay at {url} cannot be reached ({type(error).__name__})"
        fix = "Check the network and the relay; what is recorded meanwhile waits here."
        return [Check("relay", State.FAILED, what, fix, ExitCode.RELAY_UNREACHABLE)]
    took = now_ms() - before
    if status != http.HTTPStatus.OK:
        what = f"what answers at {url} is no relay that works: it says {status} to /health"
        fix = "Check the address, and the relay's own log."
        return [Check("relay", State.FAILED, what, fix, ExitCode.RELAY_UNREACHABLE)]
    return [Check("relay", State.OK, f"{url} answers in {took} ms"), _clock(date, before + took / 2)]


def _clock(date: str, here_ms: float) -> Check:
    try:
        there_ms = parsedate_to_datetime(date).timestamp() * 1000 + 500  # whole seconds, cut off
    except (ValueError, TypeError):
        return Check("clock", State.WARNING, "the relay does not tell its time")
    ahead = (here_ms - there_ms) / 1000
    if abs(ahead) <= CLOCK_SECONDS_MAX:
        return Check("clock", State.OK, f"agrees with the relay's within {max(abs(ahead), 1):.0f} s")
    what = f"this machine's clock is {abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'} the relay's"
    return Check("clock", State.WARNING, what, "Set this machine's clock, or tell whoever runs the relay.")
