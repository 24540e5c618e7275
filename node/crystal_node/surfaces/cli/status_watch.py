"""``crystal status --watch``: the standing as it changes, until Ctrl-C.

On a terminal that can move its cursor the whole standing is drawn again in place; elsewhere it is said once, and then a line
for each thing that changed; with JSON a document a line for each change. The databases are asked once a second whether anything
was committed, which costs next to nothing; everything is gathered anew only then, and now and then for what time alone changes.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from crystal_node.surfaces.cli.options import is_terminal
from crystal_node.surfaces.cli.output import emit_line, say

if TYPE_CHECKING:
    from pathlib import Path

    from crystal_node.agent.health.standing import Standing
    from crystal_node.device.device import Device

LOOK_SECONDS = 1.0
AGAIN_SECONDS = 10.0
"""Everything is gathered anew at least this often: locks, disks and other machines' silence leave no commit here."""

_OVER = ("over", "over")


def follow(device: "Device", *, as_json: bool) -> None:
    """Returns when the person has enough."""
    from crystal_node.surfaces.cli.screen import can_move

    try:
        if as_json:
            _documents(device)
        elif is_terminal(output=True) and can_move():
            _drawn(device)
        else:
            _told(device)
    except KeyboardInterrupt:
        return


def _documents(device: "Device") -> None:
    from crystal_node.agent.health.document import status_document, without_ages

    before: object = None
    for found in _standings(device):
        document = status_document(device, found)
        now = without_ages(document)
        if now != before:
            emit_line(document)
        before = now


def _drawn(device: "Device") -> None:
    from rich.live import Live
    from rich.text import Text

    from crystal_node.surfaces.cli.status_lines import news_lines, status_lines
    from crystal_node.surfaces.cli.terminal import console

    screen = console()
    with Live(console=screen, auto_refresh=False, vertical_overflow="ellipsis") as live:
        for found in _standings(device):
            lines = [*status_lines(device, found), *news_lines(device), "", "Ctrl-C ends this."]
            live.update(Text("\n".join(lines)), refresh=True)


def _told(device: "Device") -> None:
    from crystal_node.base.clock import now_ms
    from crystal_node.base.wording import clock_time
    from crystal_node.surfaces.cli.status_lines import news_lines, status_lines

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


def _facts(found: "Standing") -> dict[str, tuple[object, str]]:
    """By name: what is compared, and what is said of it, which may hold an age."""
    facts: dict[str, tuple[object, str]] = {name: (said, said) for name, said in _plain(found).items()}
    for each in found.stuck:
        facts[f"stuck ({each.name.value})"] = (each.remedy, f"{each.text} {each.remedy}")
    return facts


def _plain(found: "Standing") -> dict[str, str]:
    from crystal_node.base.wording import counted
    from crystal_node.sync.members.naming import name_of

    member, through = found.member, found.channels
    runner = found.background.runner
    facts = {
        "role": "Core" if member.is_core else "Node",
        "memory": f"{counted(found.counts.texts, 'text')}, {counted(found.counts.memories, 'memory', 'memories')}",
        "mirror": f"epoch {member.position[0]}, {member.position[1]:,} applied, {through.mirror.behind or 0:,} behind",
        "outbox": f"{member.pending:,} not sent, {member.stored:,} on the relay",
        "files": f"{found.files.synced:,} of {found.files.tree:,} synced, {found.files.offered:,} waiting",
        "sync": "nobody watches" if runner is None else f"{runner.purpose or 'another process'} is running",
        "private": "on" if found.privacy.on else "off",
    }
    if through.commands is not None:
        commands = through.commands
        facts["commands"] = f"{commands.asked} asked, {commands.running} running, {commands.waiting} waiting"
    for row in found.devices:
        if not row.entry.is_this and row.entry.cursor is not None:
            facts[name_of(row.entry)] = "?" if row.behind is None else f"{row.behind:,} behind"
    facts |= {f"attention ({each.name.value})": each.text for each in found.concerns}
    return facts | {f"notice ({name})": detail for name, detail in member.notices.items()}


def _standings(device: "Device") -> Iterator["Standing"]:
    """The standing, whenever it may be another one. Other processes of this home write; this one only reads."""
    from crystal_mirror.logsync import catch_up
    from crystal_node.agent.health.standing import standing

    while True:
        seen, until = _marks(device), time.monotonic() + AGAIN_SECONDS
        catch_up(device.member.log, device.journal)
        yield standing(device)
        while _marks(device) == seen and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)


def _marks(device: "Device") -> tuple[object, ...]:
    """Differs when something was committed, or somebody came or went."""
    from crystal_node.agent.daemon.standing import holder_of

    home = device.settings.home
    state = device.journal.connection.execute("PRAGMA data_version").fetchone()
    files = [_stamp(path) for path in (home.jobs_database, home.commands_database, home.files_database)]
    return state, device.replica.database.version(), holder_of(home), *files


def _stamp(path: "Path") -> tuple[int, int] | None:
    """Of the write-ahead log, where commits go first."""
    try:
        about = path.with_name(f"{path.name}-wal").stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size
