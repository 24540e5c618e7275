"""``crystal status``: this device's status, without asking anybody.

``--watch`` shows it until Ctrl-C. On a terminal that can move its cursor it is redrawn in place; elsewhere it is printed
once, then a line for each change; with ``--json`` a document a line for each change. The databases are asked once a second
whether anything was committed; everything is gathered only then, and every ten seconds for what time alone changes.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from crystal_mirror.devicelog.sync import catch_up
from crystal_node.agent.health.status import DeviceStatus, device_status, status_document, without_ages
from crystal_node.agent.health.status_lines import news_lines, status_lines
from crystal_node.agent.jobs.status import lock_holder
from crystal_node.base.clock import now_ms
from crystal_node.base.settings import resolve
from crystal_node.base.wording import clock_time, counted
from crystal_node.device.device import Device
from crystal_node.device.keys.report import DATABASE_WORDS
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit_line, say
from crystal_node.surfaces.cli.console.terminal import can_move, console, is_terminal
from crystal_node.surfaces.cli.status_plain import opened_device, show
from crystal_node.sync.members.names import name_of

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
    if not watch:
        show(as_json=as_json)
        return
    with opened_device(resolve()) as device:
        follow(device, as_json=as_json)


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
