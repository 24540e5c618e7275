"""What an open device knows of itself and of its vault, without a network."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from crystal_node.agent.health.checks.memory import embedding, indexes
from crystal_node.agent.health.findings import (
    CLOCK_BACK_MS,
    KIT_FIX,
    STRANGE_REMEDY,
    Check,
    State,
    guarded,
    kit_reminder,
    strange_text,
)
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import ExitCode
from crystal_node.base.settings import Settings
from crystal_node.base.wording import ago, counted, one_line
from crystal_node.device.activity import Activity, read_moments, read_problems, read_strange, read_trouble
from crystal_node.device.recovery_kit import KitState, kit_state

if TYPE_CHECKING:
    from crystal_mirror.membership.member import Member
    from crystal_node.device.device import Device

_DAY_MS = 86_400_000
_GRACE_DAYS = 7

PENDING_SECONDS_MAX = 24 * 3600.0
"""What waits longer than this for the relay is worth a warning."""


def device_checks(settings: Settings, device: "Device", *, deep: bool) -> list[Check]:
    """All of them, each by itself. The indexes are read as a whole: seconds, for a large memory."""
    return [
        *quick_checks(settings, device),
        *guarded("embedding", lambda: embedding(device)),
        *guarded("indexes", lambda: indexes(device, deep=deep)),
    ]


def quick_checks(settings: Settings, device: "Device") -> list[Check]:
    """Those that read little."""
    member = device.member
    role = "Core" if member.is_core else "Node"
    what = f"a {role} of vault {member.vault.hex()[:8]}; its keys and databases open"
    return [
        Check("device", State.OK, what),
        *guarded("outbox", lambda: [_outbox(device)]),
        *guarded("sync", lambda: _sync(device)),
        *guarded("watcher", lambda: [_watcher(device)]),
        *guarded("transcripts", lambda: _transcripts(device)),
        *guarded("device log", lambda: [_log(member)]),
        *guarded("access", lambda: _access(device)),
        *guarded("generation", lambda: [_generation(member)]),
        *guarded("snapshots", lambda: [_snapshots(device)]),
        *guarded("recovery kit", lambda: [_kit(settings, member)]),
    ]


def _outbox(device: "Device") -> Check:
    count, seconds = device.journal.outbox_count(), device.pending_seconds()
    if not count or seconds is None:
        return Check("outbox", State.OK, "empty: everything recorded here is durable")
    what = f"{counted(count, 'operation')} not durable yet, the oldest for {ago(seconds)} at most"
    if seconds <= PENDING_SECONDS_MAX:
        return Check("outbox", State.OK, what)
    return Check("outbox", State.WARNING, what, "`crystal sync` sends it; the Core has to sync, too")


def _sync(device: "Device") -> Iterator[Check]:
    """What the last rounds left: since when they fail, and whether this clock agrees with their notes."""
    trouble, moments, now = read_trouble(device.journal), read_moments(device.journal), now_ms()
    back = max(moments.values(), default=0) - now
    if back > CLOCK_BACK_MS:
        what = f"this machine's clock is {ago(back / 1000)} behind its own notes"
        yield Check("clock here", State.WARNING, what, "Set it, or have it set from the network.")
    if trouble is not None and device.member.log.is_active(device.member.device_id):  # else the log says why
        since = ago(max(now - trouble.since, 0) / 1000)
        what = f"rounds have failed for {since}: {one_line(trouble.message, 200)}"
        yield Check("sync", State.WARNING, what, trouble.hint)
    elif Activity.ROUND in moments:
        last = ago(max(now - moments[Activity.ROUND], 0) / 1000)
        yield Check("sync", State.OK, f"the last round was made {last} ago")


def _transcripts(device: "Device") -> Iterator[Check]:
    problems = read_problems(device.journal)
    if problems:
        first = problems[0]
        why = one_line(first.why.removeprefix("cannot be read: "), 120)
        what = f"{counted(len(problems), 'transcript')} cannot be read: {one_line(first.path, 120)} ({why})"
        yield Check("transcripts", State.WARNING, what, "Make them readable for you, then: crystal capture")
    for each in read_strange(device.journal):
        if each.is_told(now_ms()):
            yield Check("transcripts", State.WARNING, strange_text(each).removesuffix("."), STRANGE_REMEDY)


def _snapshots(device: "Device") -> Check:
    from crystal_node.sync.maintenance.retention_status import retention_finding

    found = retention_finding(device)
    return Check("snapshots", State.WARNING if found.fix else State.OK, found.what, found.fix)


def _watcher(device: "Device") -> Check:
    from crystal_node.agent.jobs.status import lock_holder

    holder = lock_holder(device.settings.home)
    if holder is not None:
        return Check("watcher", State.OK, f"{one_line(holder.purpose, 40) or 'another process'} is running")
    fix = "`crystal agent install` has it done for good; `crystal sync --watch` in a terminal, for now."
    return Check("watcher", State.WARNING, "nothing syncs by itself: no watcher is running", fix)


def _log(member: "Member") -> Check:
    log = member.log
    active, gone = len(log.active()), len(log.members()) - len(log.active())
    what = f"{log.next_slot} entries, head {log.head.hex()[:16]}; {counted(active, 'device')}"
    what += f", {gone} revoked" if gone else ""
    if not log.is_active(member.device_id):
        fix = "If it still is yours, it comes back as another device: `crystal pair --new-keys --code -`."
        return Check("device log", State.FAILED, "this device was revoked", fix, ExitCode.WRONG_KEY)
    return Check("device log", State.OK, what)


def _access(device: "Device") -> list[Check]:
    """What the last round found; a relay's health page lets everybody in."""
    from crystal_node.device.access import Access, read_access

    if read_access(device.journal) is not Access.REFUSED:
        return []
    fix = "crystal init --role core --enroll-token -" if device.member.is_core else "crystal pair --code -"
    what = "at the last sync the relay refused this device: it was revoked, or the relay lost its tokens"
    return [Check("access", State.FAILED, what, fix, ExitCode.RELAY_REFUSED)]


def _generation(member: "Member") -> Check:
    from crystal_mirror.membership.administration import GENERATION_DAYS_MAX
    from crystal_mirror.membership.status import details_of

    number = member.log.generation
    entry = member.log.generation_entry(number)
    details = None if entry is None else details_of(member, entry)
    if member.key_for(number) is None:
        fix = "Run `crystal devices renew-keys` on the Core, or pair this machine again."
        return Check("generation", State.FAILED, f"this device lacks the key of generation {number}", fix, 7)
    if details is None:
        return Check("generation", State.OK, f"keys of generation {number}")
    days = (now_ms() - details.at) / _DAY_MS
    if days < 0:
        what = f"keys of generation {number}, made by a clock that was ahead of this one"
        return Check("generation", State.WARNING, what, "Set the clocks of your machines.")
    what = f"keys of generation {number}, {ago(days * 86400)} old"
    if days > GENERATION_DAYS_MAX + _GRACE_DAYS:
        return Check("generation", State.WARNING, what, "The Core renews them when it syncs: does it?")
    return Check("generation", State.OK, what)


def _kit(settings: Settings, member: "Member") -> Check:
    from crystal_node.sync.members.root_holders import holders

    reminder = kit_reminder(settings, member)
    if reminder is not None:
        return Check("recovery kit", State.WARNING, reminder, KIT_FIX)
    if kit_state(settings.config, member.log.root) is KitState.VERIFIED:
        return Check("recovery kit", State.OK, "verified on this machine")
    others = "; ".join(f"{one_line(name, 40)} {known.words}" for name, known in holders(member))
    return Check("recovery kit", State.OK, f"this machine holds no root. As far as is known here: {others}")
