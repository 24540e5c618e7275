"""What of the prototype still writes: processes that have its files open, and the places where its programs are started from.

Its programs are started by hooks, as MCP servers, by the timetable of the system and by OpenClaw. They are recognized by the
names that the published instructions give them. Nothing here changes anything.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import json

from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.settings.settings import Places
from crystal_node.capture.json_values import is_array, is_object

FILE_BYTES_MAX = 16 * 1024 * 1024
"""Settings of other programs are read up to this size."""
_PROGRAM_SECONDS_MAX = 30
_NAMED_MAX = 5
_PROGRAMS = re.compile(
    # An install of Crystal itself is a folder of that name, too, with `bin/crystal` below it.
    r"cc-hook\.js|crystal-capture\.sh|@wipcomputer/memory-crystal|memory-crystal(?!(?:/\.?venv)?/bin/)"
)
_SECTIONS = frozenset({"hooks", "mcpServers", "plugins", "mcp", "extensions"})
"""Members of settings under which programs are registered. Elsewhere such a file may name a folder of that name."""


def holders(folder: Path) -> list[str]:
    """Other processes that have a file below the folder open, as "node (process 4711)". Of this user's only, as far as the
    system tells."""
    inside = f"{folder.resolve()}{os.sep}"
    found = _of_proc(inside) if sys.platform == "linux" else _of_lsof(folder)
    named = [f"{name} (process {number})" for number, name in sorted(found.items()) if number != os.getpid()]
    more = len(named) - _NAMED_MAX
    return named if more <= 0 else [*named[:_NAMED_MAX], f"{more} more"]


def registrations(places: Places) -> list[str]:
    """Places from which the prototype's programs are started."""
    found = [
        f"{what} in {path}"
        for what, path in _settings_files(places)
        if (text := _text(path)) and _registers(text)
    ]
    extension = places.openclaw / "extensions" / "memory-crystal"
    if extension.exists():
        found.append(f"OpenClaw's plugin {extension}")
    if _PROGRAMS.search(_crontab()):
        found.append("a line of the crontab (crontab -e)")
    for folder, pattern in _units(places.person):
        found += [
            f"the unit {path}" for path in sorted(folder.glob(pattern)) if _PROGRAMS.search(_text(path))
        ]
    return found


def _settings_files(places: Places) -> Iterator[tuple[str, Path]]:
    for name in ("settings.json", "settings.local.json"):
        yield "a hook", places.claude / name
    for path in (places.claude / ".claude.json", places.person / ".claude.json"):
        yield "an MCP server", path
    desktop = Path("Claude", "claude_desktop_config.json")
    for folder in (Path("Library", "Application Support"), Path(".config")):
        yield "an MCP server", places.person / folder / desktop
    for name in (".cursor/mcp.json", ".codex/config.toml", ".gemini/settings.json"):
        yield "an MCP server", places.person / name
    yield "a plugin or MCP server", places.openclaw / "openclaw.json"


def _units(person: Path) -> list[tuple[Path, str]]:
    systemd = person / ".config" / "systemd" / "user"
    return [(person / "Library" / "LaunchAgents", "*.plist"), (systemd, "*.service"), (systemd, "*.timer")]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""


def _registers(text: str) -> bool:
    """Whether settings start one of the programs. What is no JSON counts as a whole."""
    if not _PROGRAMS.search(text):
        return False
    try:
        settings: object = json.decode(text)
    except UNDECODABLE:
        return True
    return any(_PROGRAMS.search(each) for each in _registered(settings, inside=False))


def _registered(value: object, *, inside: bool) -> Iterator[str]:
    """The strings below the members that register programs, names of members included."""
    if is_object(value):
        for name, member in value.items():
            if inside:
                yield name
            yield from _registered(member, inside=inside or name in _SECTIONS)
    elif is_array(value):
        for member in value:
            yield from _registered(member, inside=inside)
    elif inside and isinstance(value, str):
        yield value


def _crontab() -> str:
    program = shutil.which("crontab")
    return _output([program, "-l"]) if program else ""


def _of_proc(inside: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            opened = any(str(each.readlink()).startswith(inside) for each in (process / "fd").iterdir())
            if opened:
                found[int(process.name)] = (process / "comm").read_text().strip()
        except OSError:
            continue  # it has ended, or belongs to another user
    return found


def _of_lsof(folder: Path) -> dict[int, str]:
    program = shutil.which("lsof")
    found: dict[int, str] = {}
    number = 0
    for line in _output([program, "-F", "pc", "+D", str(folder)]).splitlines() if program else ():
        if line[:1] == "p":
            number = int(line[1:])
        elif line[:1] == "c":
            found[number] = line[1:]
    return found


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROGRAM_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
