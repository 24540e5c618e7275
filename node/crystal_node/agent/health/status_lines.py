"""A device's status in words: the lines of ``crystal status``."""

from collections.abc import Iterator

from crystal_node.agent.health.findings import STOPPING
from crystal_node.agent.health.status import DeviceStatus
from crystal_node.base.clock import now_ms
from crystal_node.base.notice_texts import notice_text
from crystal_node.base.settings import Settings
from crystal_node.base.wording import ago, counted, one_line, size
from crystal_node.capture.tools import tools_words
from crystal_node.device.activity import Activity
from crystal_node.device.bridge import BridgeReport
from crystal_node.device.device import Device
from crystal_node.device.keys.report import DATABASE_WORDS
from crystal_node.sync.maintenance.retention_status import replication_lines
from crystal_node.sync.members.device_list import MemberRow
from crystal_node.sync.members.names import name_of
from crystal_node.sync.members.news import lines_of

_DEVICES_MAX = 8
"""Others that are listed; `crystal devices` lists all."""


def status_lines(device: Device, found: DeviceStatus) -> list[str]:
    """All lines but the news."""
    return [*_status_lines(device, found), *_needs(found)]


def news_lines(device: Device) -> list[str]:
    """What happened in the vault and was not shown yet."""
    return [f"* {line}" for line in lines_of(device.member)]


def _status_lines(device: Device, found: DeviceStatus) -> Iterator[str]:
    settings, member, counts = device.settings, found.member, found.counts
    role = "Core" if member.is_core else "Node"
    yield (
        f"{one_line(device.name, 60)} is a {role} of vault {member.vault.hex()[:8]} (device {member.device.hex()[:8]})."
    )
    yield f"memory   {counted(counts.texts, 'message')}, {counted(counts.memories, 'memory', 'memories')}"
    yield _mirror(found)
    yield from replication_lines(device.member, found.replication)
    yield _outbox(found)
    yield _files_line(found)
    yield from _sessions_line(settings, found)
    yield from _commands(found)
    yield from _devices(found.devices)
    if found.recall.line:
        yield f"recall   {found.recall.line}"
    yield f"last     {_moments(found, now_ms())}"
    yield f"relay    {_own_relay(settings) if settings.relay_is_local else settings.relay_words}"
    age = f", {ago(max(now_ms() - found.generation_at, 0) / 1000)} old" if found.generation_at else ""
    yield f"keys     generation {found.generation}{age}"
    yield f"at rest  {DATABASE_WORDS[found.databases]}"
    if found.bridge is not None:
        yield f"bridge   {_bridge(found.bridge)}"
    yield f"sync     {_sync(found)}"
    capture = settings.capture
    if not capture.on:
        yield "capture  OFF: nothing is recorded until `crystal capture on`, which then catches up"
    else:
        yield f"capture  {one_line(tools_words(settings, settings.person_home), 200)}"
    if found.privacy.on:
        yield "private  ON: nothing is recorded (`crystal private off` ends it)"


def _own_relay(settings: Settings) -> str:
    port = settings.service.own_relay_port
    if not port:
        return "in this home, for this machine alone: `crystal pair` brings in another machine"
    return (
        f"in this home, open to your network at port {port}; `crystal config unset own_relay_port` closes it"
    )


def _mirror(found: DeviceStatus) -> str:
    member, behind = found.member, found.channels.mirror.behind
    text = f"mirror   epoch {member.position[0]}, {member.position[1]:,} applied, digest {member.digest.hex()[:16]}"
    if behind:
        text += f"; {counted(behind, 'change')} behind{_at_most(found.channels.mirror.oldest_seconds)}"
    return text


def _at_most(seconds: float | None) -> str:
    return "" if seconds is None else f", the oldest for {ago(seconds)} at most"


def _commands(found: DeviceStatus) -> Iterator[str]:
    open_ = found.channels.commands
    if open_ is not None and (open_.asked or open_.running or open_.waiting):
        text = f"commands {open_.asked} asked and open, {open_.running} running here, {open_.waiting} waiting here"
        yield text + _at_most(open_.oldest_seconds)


def _outbox(found: DeviceStatus) -> str:
    waiting = found.channels.conversations
    if not waiting.waiting:
        return "outbox   empty: everything recorded here is durable"
    text = f"outbox   {counted(waiting.waiting, 'change')} not durable yet ({waiting.unsent} not sent)"
    return text + _at_most(waiting.oldest_seconds)


def _files_line(found: DeviceStatus) -> str:
    files, last = found.files, found.files.last
    oldest = found.channels.files.oldest_seconds
    since = "" if oldest is None else f" for {ago(oldest)} at most"
    odd = [
        text
        for count, text in (
            (files.offered, f"{files.offered:,} waiting for the Core{since}"),
            (len(files.conflicts), counted(len(files.conflicts), "conflict copy", "conflict copies")),
            (last.refused_count, f"{last.refused_count:,} not synced"),
            (len(last.lacking), f"{len(last.lacking):,} not complete on the relay"),
            (files.aside, f"{files.aside:,} left out here"),
            (files.held, f"{sum(files.held.values()):,} held back (`crystal files status`)"),
            (files.trash_files, f"{files.trash_files:,} in the trash"),
        )
        if count
    ]
    return f"files    {', '.join([f'{files.synced:,} of {files.tree:,} synced', *odd])}"


def _sessions_line(settings: Settings, found: DeviceStatus) -> Iterator[str]:
    rules, copies = settings.sessions, found.copies
    if copies is None:
        if not rules.on:
            yield "sessions OFF: not copied (`crystal config set sessions yes`)"
        return
    parts = [f"after {counted(rules.keep_days, 'day')} without growth"] if rules.keep_days else []
    parts += [f"beyond {rules.max_gb} GB"] if rules.max_gb else []
    text = f"sessions {copies.sessions:,} kept, {size(copies.bytes)}, " + (
        f"removed {' and '.join(parts)}" if parts else "for good"
    )
    if copies.dropped:
        text += f"; {copies.dropped:,} removed so far"
    if copies.unreadable:
        text += (
            f"; {counted(copies.unreadable, 'copy', 'copies')} cannot be read (`crystal sessions retention`)"
        )
    yield text if rules.on else f"{text}; OFF: nothing more is copied here"


def _devices(rows: tuple[MemberRow, ...]) -> Iterator[str]:
    others = [row for row in rows if not row.entry.is_this]
    now = now_ms()
    for number, row in enumerate(others[:_DEVICES_MAX]):
        yield f"{'devices' if number == 0 else '':<8} {_device(row, now)}"
    if len(others) > _DEVICES_MAX:
        yield f"{'':<8} and {len(others) - _DEVICES_MAX:,} more: `crystal devices`"


def _device(row: MemberRow, now: int) -> str:
    role = ", the Core" if row.entry.leads else ""
    if row.entry.cursor is None:
        return f"{one_line(name_of(row.entry), 40)}{role}: not heard of yet"
    seen = f"heard of {ago(max(now - row.seen_at, 0) / 1000)} ago" if row.seen_at else "heard of"
    parts = [seen]
    if row.entry.leads:
        pass  # what it is behind of is its own log: what it last told is old, not late
    elif row.behind is None:
        parts.append("behind by more than is known here")
    elif row.behind:
        parts.append(f"{counted(row.behind, 'change')} behind")
    else:
        parts.append("caught up")
    if row.pending:
        parts.append(f"{row.pending:,} not durable there")
    return f"{one_line(name_of(row.entry), 40)}{role}: {', '.join(parts)}"


def _moments(found: DeviceStatus, now: int) -> str:
    words = {
        Activity.CAPTURE: "recorded",
        Activity.PUSH: "sent",
        Activity.PULL: "received",
        Activity.ACK: "made durable",
        Activity.ROUND: "synced",
        Activity.WEAVE: "woven",
        Activity.BACKUP: "backed up",
    }
    said = [
        f"{word} {ago(max(now - found.moments[moment], 0) / 1000)} ago"
        for moment, word in words.items()
        if moment in found.moments
    ]
    return ", ".join(said) or "never synced"


def _sync(found: DeviceStatus) -> str:
    runner = found.background.runner
    if runner is None:
        return "nothing syncs by itself: the background service is not running"
    process = f" (process {runner.pid})" if runner.pid is not None else ""
    if runner.is_agent:
        started = found.background.started
        since = f" for {ago(max(now_ms() - started, 0) / 1000)}" if started else ""
        text = f"the background service is running{since}{process}"
    else:
        text = f"a watcher is running{process}: {one_line(runner.purpose or 'another process', 40)}"
    if found.background.put_off:
        text += f"; heavy work waits: {found.background.put_off}"
    if found.background.paused:
        text += f"; paused: {', '.join(found.background.paused)}"
    return text


def _needs(found: DeviceStatus) -> Iterator[str]:
    told = {notice.value for notice in STOPPING}
    for each in found.stuck:
        yield f"! {each.text}"
        yield f"  {each.fix}"
    for name, detail in found.member.notices.items():
        if name in told:
            continue
        yield f"! {notice_text(name)} ({detail})"
    for concern in found.concerns:
        yield f"! {concern.sentence}"


def _bridge(report: BridgeReport) -> str:
    taken = f"{counted(report.drops, 'drop')} with {counted(report.messages, 'message')} taken in from {report.url}"
    if report.sealed:
        taken += f"; {counted(report.sealed, 'drop')} there cannot be opened with its key"
    if report.unread:
        taken += f"; {counted(report.unread, 'drop')} there cannot be read in full"
    return f"{taken}; {report.trouble}" if report.trouble else taken
