"""``crystal status``: this device's status, without asking anybody.

``--watch`` shows it until Ctrl-C. On a terminal that can move its cursor it is redrawn in place; elsewhere it is printed
once, then a line for each change; with ``--json`` a document a line for each change. The databases are asked once a second
whether anything was committed; everything is gathered only then, and every ten seconds for what time alone changes.
"""

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import apsw
import typer

from crystal_mirror.devicelog.sync import catch_up
from crystal_node.agent.health.facts import free_space
from crystal_node.agent.health.findings import STOPPING
from crystal_node.agent.health.status import DeviceStatus, device_status, status_document, without_ages
from crystal_node.agent.jobs.status import lock_holder
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import ExitCode, LocalStorage, describe
from crystal_node.base.notice_texts import notice_text
from crystal_node.base.settings import Settings, resolve
from crystal_node.base.wording import ago, clock_time, counted, one_line
from crystal_node.capture.tools import tools_words
from crystal_node.device.activity import Activity
from crystal_node.device.bridge import BridgeReport
from crystal_node.device.device import Device
from crystal_node.device.keys.report import DATABASE_WORDS
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, emit_line, say
from crystal_node.surfaces.cli.console.terminal import can_move, console, is_terminal
from crystal_node.sync.maintenance.retention_status import replication_lines
from crystal_node.sync.members.device_list import MemberRow
from crystal_node.sync.members.names import name_of
from crystal_node.sync.members.news import lines_of, mark_all_shown

Watching = Annotated[
    bool,
    typer.Option(
        "--watch", "-w", help="Go on, and show each change, until Ctrl-C. With --json: a document a line."
    ),
]


def run(watch: Watching = False, as_json: Json = False) -> None:
    """Show this device's status: what waits, and what is stuck.

    Shows its role and the other devices, what waits and for how long, what is stuck, why, and what to do. It needs no
    network, waits for nobody, and works beside a running background service.

    Example:

        crystal status
        crystal status --watch
    """
    settings = resolve()
    with _opened(settings) as device:
        if watch:
            follow(device, as_json=as_json)
            return
        found = device_status(device)
        if as_json:
            emit(status_document(device, found))
            return

        for line in (*status_lines(device, found), *news_lines(device)):
            say(line)
        with suppress(
            apsw.BusyError, apsw.FullError, apsw.IOError, apsw.ReadOnlyError
        ):  # then it is shown once more
            mark_all_shown(device.member)


@contextmanager
def _opened(settings: Settings) -> Generator[Device]:
    """The device. If its disk prevents that, the error says so."""
    try:
        device = Device.open(settings)
    except Exception as error:
        failure = describe(error)
        trouble = [disk for disk in free_space(settings.home) if disk.low or disk.read_only]
        if failure.exit_code != ExitCode.STORAGE or not trouble:
            raise
        disk = trouble[0]
        why = "takes no writes" if disk.read_only else f"has no room: only {disk.words} left"
        raise LocalStorage(
            f"{failure.message}; the disk of {disk.folder} {why}",
            hint="Make room, or mount it for writing. What was recorded is safe; nothing is recorded until then.",
        ) from error
    try:
        yield device
    finally:
        device.close()


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


LOOK_SECONDS = 1.0
AGAIN_SECONDS = 10.0
"""Everything is gathered again at least this often: locks, disks and other machines' silence leave no commit here."""

_OVER = ("over", "over")


def follow(device: Device, *, as_json: bool) -> None:
    """Show the status as it changes, until Ctrl-C."""
    try:
        if as_json:
            _documents(device)
        elif is_terminal(output=True) and can_move():
            _drawn(device)
        else:
            _told(device)
    except KeyboardInterrupt:
        return


def _documents(device: Device) -> None:
    before: object = None
    for found in _standings(device):
        document = status_document(device, found)
        now = without_ages(document)
        if now != before:
            emit_line(document)
        before = now


def _drawn(device: Device) -> None:
    from rich.live import Live
    from rich.text import Text

    screen = console()
    with Live(console=screen, auto_refresh=False, vertical_overflow="ellipsis") as live:
        for found in _standings(device):
            lines = [*status_lines(device, found), *news_lines(device), "", "Ctrl-C ends this."]
            live.update(Text("\n".join(lines)), refresh=True)


def _told(device: Device) -> None:
    before: dict[str, tuple[object, str]] | None = None
    for found in _standings(device):
        now = _facts(found)
        if before is None:
            for line in (*status_lines(device, found), *news_lines(device)):
                say(line)
        else:
            moment = clock_time(now_ms())
            for name in (*now, *(name for name in before if name not in now)):
                if now.get(name, _OVER)[0] != before.get(name, _OVER)[0]:
                    say(f"{moment}  {name}: {now.get(name, _OVER)[1]}")
        before = now


def _facts(found: DeviceStatus) -> dict[str, tuple[object, str]]:
    """By name: the value to compare, and the words, which may contain an age."""
    facts: dict[str, tuple[object, str]] = {name: (said, said) for name, said in _plain(found).items()}
    for each in found.stuck:
        facts[f"stuck ({each.name})"] = (each.fix, each.sentence)
    return facts


def _plain(found: DeviceStatus) -> dict[str, str]:
    member, through = found.member, found.channels
    runner = found.background.runner
    facts = {
        "role": "Core" if member.is_core else "Node",
        "memory": f"{counted(found.counts.texts, 'message')}, {counted(found.counts.memories, 'memory', 'memories')}",
        "mirror": f"epoch {member.position[0]}, {member.position[1]:,} applied, {through.mirror.behind or 0:,} behind",
        "outbox": f"{member.pending:,} not sent, {member.stored:,} on the relay",
        "files": f"{found.files.synced:,} of {found.files.tree:,} synced, {found.files.offered:,} waiting",
        "sync": "nobody watches" if runner is None else f"{runner.purpose or 'another process'} is running",
        "private": "on" if found.privacy.on else "off",
        "at rest": DATABASE_WORDS[found.databases],
    }
    if through.commands is not None:
        commands = through.commands
        facts["commands"] = f"{commands.asked} asked, {commands.running} running, {commands.waiting} waiting"
    for row in found.devices:
        if not row.entry.is_this and row.entry.cursor is not None:
            facts[name_of(row.entry)] = "?" if row.behind is None else f"{row.behind:,} behind"
    facts |= {f"attention ({each.name})": each.sentence for each in found.concerns}
    return facts | {f"notice ({name})": detail for name, detail in member.notices.items()}


def _standings(device: Device) -> Iterator[DeviceStatus]:
    """The status, each time that it may have changed. Other processes of this home write; this one only reads."""
    while True:
        seen, until = _marks(device), time.monotonic() + AGAIN_SECONDS
        catch_up(device.member.log, device.journal)
        yield device_status(device)
        while _marks(device) == seen and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)


def _marks(device: Device) -> tuple[object, ...]:
    """A value that differs when something was committed, or a process came or went."""
    home = device.settings.home
    state = device.journal.connection.execute("PRAGMA data_version").fetchone()
    files = [_stamp(path) for path in (home.jobs_database, home.commands_database, home.files_database)]
    return state, device.replica.database.version(), lock_holder(home), *files


def _stamp(path: Path) -> tuple[int, int] | None:
    """Time and size of the write-ahead log, where commits go first."""
    try:
        about = path.with_name(f"{path.name}-wal").stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


def _bridge(report: BridgeReport) -> str:
    taken = f"{counted(report.drops, 'drop')} with {counted(report.messages, 'message')} taken in from {report.url}"
    if report.sealed:
        taken += f"; {counted(report.sealed, 'drop')} there cannot be opened with its key"
    if report.unread:
        taken += f"; {counted(report.unread, 'drop')} there cannot be read in full"
    return f"{taken}; {report.trouble}" if report.trouble else taken
