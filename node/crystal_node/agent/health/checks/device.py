"""What an open device knows of itself and of its vault. No network."""

from collections.abc import Iterator

from crystal_mirror.membership.administration import GENERATION_DAYS_MAX
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import details_of
from crystal_node.agent.health.checks.memory import embedding, foreign, indexes, judge
from crystal_node.agent.health.findings import (
    Finding,
    Severity,
    clock_findings,
    guarded,
    key_findings,
    round_findings,
    transcript_findings,
)
from crystal_node.agent.health.vault_findings import kit_findings
from crystal_node.agent.jobs.status import lock_holder
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import ExitCode
from crystal_node.base.settings import Settings
from crystal_node.base.wording import ago, counted, one_line
from crystal_node.capture.tools import tools_words
from crystal_node.device.access import Access, read_access
from crystal_node.device.activity import Activity, read_moments, read_problems, read_strange, read_trouble
from crystal_node.device.device import Device
from crystal_node.device.recovery_kit import KitState, kit_state
from crystal_node.sync.maintenance.retention_status import retention_finding
from crystal_node.sync.members.root_holders import holders

_DAY_MS = 86_400_000
_GRACE_DAYS = 7

PENDING_SECONDS_MAX = 24 * 3600.0
"""What waits longer for the relay is a warning."""


def device_checks(settings: Settings, device: Device, *, deep: bool) -> list[Finding]:
    """All checks of an open device. Reads the whole indexes: seconds for a large memory."""
    return [
        *quick_checks(settings, device),
        *guarded("embedding", lambda: embedding(device)),
        *guarded("judge", lambda: judge(settings)),
        *guarded("indexes", lambda: indexes(device, deep=deep)),
    ]


def quick_checks(settings: Settings, device: Device) -> list[Finding]:
    """The checks that read little."""
    member = device.member
    role = "Core" if member.is_core else "Node"
    what = f"a {role} of vault {member.vault.hex()[:8]}; its keys and databases open"
    return [
        Finding("device", Severity.OK, what),
        *guarded("outbox", lambda: [_outbox(device)]),
        *guarded("sync", lambda: _sync(device)),
        *guarded("watcher", lambda: [_watcher(device)]),
        *guarded("tools", lambda: [_tools(settings)]),
        *guarded("transcripts", lambda: _transcripts(device)),
        *guarded("device log", lambda: [_log(member)]),
        *guarded("access", lambda: _access(device)),
        *guarded("generation", lambda: [_generation(member)]),
        *guarded("snapshots", lambda: [_snapshots(device)]),
        *guarded("recovery kit", lambda: [_kit(settings, member)]),
        *guarded("foreign tables", lambda: foreign(device)),
    ]


def _outbox(device: Device) -> Finding:
    count, seconds = device.journal.outbox_count(), device.pending_seconds()
    if not count or seconds is None:
        return Finding("outbox", Severity.OK, "empty: everything recorded here is durable")
    what = f"{counted(count, 'change')} not durable yet, the oldest for {ago(seconds)} at most"
    if seconds <= PENDING_SECONDS_MAX:
        return Finding("outbox", Severity.OK, what)
    return Finding("outbox", Severity.WARNING, what, "`crystal sync` sends it; the Core has to sync, too")


def _sync(device: Device) -> Iterator[Finding]:
    """Since when rounds fail, and whether this clock agrees with their notes."""
    failure, last, now = read_trouble(device.journal), read_moments(device.journal), now_ms()
    for each in clock_findings(last, now):
        yield each.named("clock here")
    if failure is not None and device.member.log.is_active(device.member.device_id):  # else the log says why
        for each in round_findings(failure, now):
            yield each.named("sync")
    elif Activity.ROUND in last:
        ended = ago(max(now - last[Activity.ROUND], 0) / 1000)
        yield Finding("sync", Severity.OK, f"the last round was made {ended} ago")


def _tools(settings: Settings) -> Finding:
    """The AI tools that are here. None is no fault: a Core may stand in a cupboard."""
    words = tools_words(settings, settings.person_home)
    off = "" if settings.capture.on else "; recording is off"
    return Finding("tools", Severity.OK, words + off)


def _transcripts(device: Device) -> Iterator[Finding]:
    unreadable, unknown = read_problems(device.journal), read_strange(device.journal)
    for each in transcript_findings(unreadable, unknown, now_ms()):
        yield each.named("transcripts")


def _snapshots(device: Device) -> Finding:
    found = retention_finding(device)
    return Finding("snapshots", Severity.WARNING if found.fix else Severity.OK, found.what, found.fix)


def _watcher(device: Device) -> Finding:
    holder = lock_holder(device.settings.home)
    if holder is not None:
        return Finding(
            "watcher", Severity.OK, f"{one_line(holder.purpose, 40) or 'another process'} is running"
        )
    fix = "`crystal agent install` has it done for good; `crystal sync --watch` in a terminal, for now."
    return Finding("watcher", Severity.WARNING, "nothing syncs by itself: no watcher is running", fix)


def _log(member: Member) -> Finding:
    log = member.log
    active, gone = len(log.active()), len(log.members()) - len(log.active())
    what = f"{log.next_slot} entries, head {log.head.hex()[:16]}; {counted(active, 'device')}"
    what += f", {gone} revoked" if gone else ""
    if not log.is_active(member.device_id):
        fix = "If it still is yours, it comes back as another device: `crystal pair --new-keys --code -`."
        return Finding("device log", Severity.FAILED, "this device was revoked", fix, ExitCode.WRONG_KEY)
    return Finding("device log", Severity.OK, what)


def _access(device: Device) -> list[Finding]:
    """What the last round found: the relay's health page needs no token."""
    if read_access(device.journal) is not Access.REFUSED:
        return []
    fix = "crystal init --role core --enroll-token -" if device.member.is_core else "crystal pair --code -"
    what = "at the last sync the relay refused this device: it was revoked, or the relay lost its tokens"
    return [Finding("access", Severity.FAILED, what, fix, ExitCode.RELAY_REFUSED)]


def _generation(member: Member) -> Finding:
    number = member.log.generation
    entry = member.log.generation_entry(number)
    details = None if entry is None else details_of(member, entry)
    for each in key_findings(number if member.key_for(number) is None else None):
        return each.named("generation")
    if details is None:
        return Finding("generation", Severity.OK, f"keys of generation {number}")
    days = (now_ms() - details.at) / _DAY_MS
    if days < 0:
        what = f"keys of generation {number}, made by a clock that was ahead of this one"
        return Finding("generation", Severity.WARNING, what, "Set the clocks of your machines.")
    what = f"keys of generation {number}, {ago(days * 86400)} old"
    if days > GENERATION_DAYS_MAX + _GRACE_DAYS:
        return Finding("generation", Severity.WARNING, what, "The Core renews them when it syncs: does it?")
    return Finding("generation", Severity.OK, what)


def _kit(settings: Settings, member: Member) -> Finding:
    for each in kit_findings(settings, member):
        return each.named("recovery kit")
    if kit_state(settings.config, member.log.root) is KitState.VERIFIED:
        return Finding("recovery kit", Severity.OK, "verified on this machine")
    others = "; ".join(f"{one_line(name, 40)} {known.words}" for name, known in holders(member))
    return Finding(
        "recovery kit", Severity.OK, f"this machine holds no root. As far as is known here: {others}"
    )
