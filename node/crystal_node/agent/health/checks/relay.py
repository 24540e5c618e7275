"""Whether the relay can be reached, has the same time, lets this device in, and still holds what was seen there.

As far as one device can tell, a relay is honest if it lists every slot of the device log that this device has verified, returns
each of them unchanged, and has a mirror that ends (or goes on) where it ends here. Nothing is applied or put back: a round
does both.
"""

import asyncio
import http
from email.utils import parsedate_to_datetime

import httpx

from crystal_crypto.errors import CrystalError
from crystal_mirror.devicelog.damage import compare_log, damage_words
from crystal_mirror.devicelog.sync import log_is_whole
from crystal_mirror.errors import LogForked
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.pull import PullOutcome, damaged_tail, tail_agrees
from crystal_mirror.requests import Flow
from crystal_node.agent.health.findings import Finding, Severity, failed
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import ExitCode
from crystal_node.base.settings import Settings
from crystal_node.base.wording import ago
from crystal_node.device.device import Device
from crystal_node.device.relay import CONNECT_SECONDS_MAX, own_relay
from crystal_node.device.runner import Runner, TokenRefused
from crystal_relay.address import check_relay_url, http_client, is_wrong_certificate
from crystal_relay.certificates import certificate_problem
from crystal_relay.embedded.transport import URL as OWN_URL
from crystal_relay.errors import RelayError

CLOCK_SECONDS_MAX = 60.0
"""The protocol does not depend on clocks; but invites and displayed times do, and a clock far off breaks TLS."""
HONEST_SECONDS_MAX = 30.0
"""Listing a log of some hundred devices takes a second or two, even from far away."""


def relay_checks(settings: Settings) -> list[Finding]:
    """One request to the relay's health page; it needs no token."""
    if not settings.relay_url:
        fix = "Join again with `crystal pair`, or set CRYSTAL_RELAY_URL."
        return [Finding("relay", Severity.FAILED, "this device has no relay", fix, ExitCode.NOT_SET_UP)]
    return asyncio.run(_ask(settings))


def honesty_checks(device: Device) -> list[Finding]:
    """What the relay shows, compared with what it showed before."""
    return asyncio.run(_compare(device))


async def _ask(settings: Settings) -> list[Finding]:
    own = own_relay(settings)
    url = (
        OWN_URL
        if own is not None
        else check_relay_url(settings.relay_url, allow_insecure=settings.allow_http)
    )
    seconds = settings.relay_timeout
    client = http_client(
        url, connect=min(CONNECT_SECONDS_MAX, seconds), idle=seconds, connections_kept=1, transport=own
    )
    if own is not None:
        url = "this machine's own relay"
    before = now_ms()
    try:
        async with client, client.stream("GET", "/health") as reply:
            status, date = reply.status_code, reply.headers.get("Date", "")
    except RelayError as error:  # of this machine's own relay
        return [failed("relay", error)]
    except httpx.HTTPError as error:
        problem = None if is_wrong_certificate(error) else await certificate_problem(error, url)
        if problem is not None:
            return [failed("relay", problem)]
        what = f"the relay at {url} cannot be reached ({type(error).__name__})"
        fix = "Finding the network and the relay; what is recorded meanwhile waits here."
        return [Finding("relay", Severity.FAILED, what, fix, ExitCode.RELAY_UNREACHABLE)]
    took = now_ms() - before
    if status != http.HTTPStatus.OK:
        what = f"what answers at {url} is no relay that works: it says {status} to /health"
        fix = "Finding the address, and the relay's own log."
        return [Finding("relay", Severity.FAILED, what, fix, ExitCode.RELAY_UNREACHABLE)]
    return [Finding("relay", Severity.OK, f"{url} answers in {took} ms"), _clock(date, before + took / 2)]


def _clock(date: str, here_ms: float) -> Finding:
    try:
        there_ms = parsedate_to_datetime(date).timestamp() * 1000 + 500  # whole seconds, cut off
    except (ValueError, TypeError):
        return Finding("clock", Severity.WARNING, "the relay does not tell its time")
    ahead = (here_ms - there_ms) / 1000
    if abs(ahead) <= CLOCK_SECONDS_MAX:
        return Finding("clock", Severity.OK, f"agrees with the relay's within {max(abs(ahead), 1):.0f} s")
    what = f"this machine's clock is {ago(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} the relay's"
    return Finding("clock", Severity.WARNING, what, "Set this machine's clock, or tell the relay's operator.")


async def _compare(device: Device) -> list[Finding]:
    try:
        async with asyncio.timeout(HONEST_SECONDS_MAX), device.online() as store:
            return [await Runner(store, None).run(_honest(device.member))]
    except TimeoutError:
        what = "the relay did not show its log in time"
        return [Finding("relay holds", Severity.WARNING, what, "Look again when the network is better.")]
    except TokenRefused as error:
        return [failed("access", error)]
    except (CrystalError, RelayError) as error:
        return [failed("relay holds", error)]


def _honest(member: Member) -> Flow[Finding]:
    """The first deviation, or that there is none."""
    log = member.log
    if not (yield from log_is_whole(log, member.keys)):
        return _lost("does not list all of the device log that this device has verified")
    try:
        damaged = yield from compare_log(log, member.journal, member.keys)
    except LogForked as error:
        return _lies(f"is not to be trusted: {error}")
    if damaged:
        return _damaged(damage_words(damaged))
    match (yield from tail_agrees(member)):
        case PullOutcome.LOG_BEHIND:
            return _lost("has lost mirror entries that this device has applied")
        case PullOutcome.DIVERGED if (yield from damaged_tail(member)) is not None:
            return _damaged("the relay's copy of the last entry of the mirror is damaged")
        case PullOutcome.DIVERGED:
            return _lies("shows another entry where the mirror ends here than it showed before")
        case _:
            what = f"{log.next_slot} entries of the device log and the mirror's end, as this device has verified them"
            return Finding("relay holds", Severity.OK, what)


def _lost(what: str) -> Finding:
    fix = "The Core puts it back when it syncs; `crystal repair` does what this machine can. If it comes again, distrust it."
    return Finding("relay holds", Severity.FAILED, f"the relay {what}", fix, ExitCode.RELAY_MISBEHAVES)


def _damaged(what: str) -> Finding:
    fix = (
        "`crystal repair` on the Core, or on a machine that keeps the root, puts back what was verified. If it comes again, "
        "look at the relay's disk."
    )
    return Finding("relay holds", Severity.FAILED, what, fix, ExitCode.RELAY_MISBEHAVES)


def _lies(what: str) -> Finding:
    fix = "Sync once more: entries may have been restored. If it stays so, do not trust this relay: move to another one."
    return Finding("relay holds", Severity.FAILED, f"the relay {what}", fix, ExitCode.RELAY_MISBEHAVES)
