"""``crystal doctor``: check this device, and fix what is safe to fix."""

from typing import Annotated

import typer

from crystal_node.agent.health.doctor import examine, exit_code, mend
from crystal_node.agent.health.findings import Finding
from crystal_node.base.settings import resolve
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say

Offline = Annotated[bool, typer.Option("--offline", help="Do not ask the relay.")]
Deep = Annotated[
    bool, typer.Option("--deep", help="Read the whole memory: every constraint, every index, every digest.")
]
Fix = Annotated[
    bool, typer.Option("--fix", help="Fix what is safe to fix, report each fix, and check again.")
]

_MARKS = {"ok": "ok", "warning": "!!", "failed": "XX"}


def run(
    fix: Fix = False,
    deep: Deep = False,
    offline: Offline = False,
    as_json: Json = False,
) -> int:
    """Check this device, and fix what is safe to fix.

    Checks permissions, keys, disk, databases, indexes, device log, kit, hooks, service, jobs, relay and clock, and says how
    to fix what is wrong. --fix does that where nothing can be lost by it: it closes files to others, rebuilds indexes, puts
    hooks back, starts the service. The exit code is 0 when nothing failed, warnings or not, else the code of the first
    thing that failed: 3 not set up, 4 the relay cannot be reached, 5 it refuses this device, 6 it misbehaves, 7 a wrong key
    or passphrase, 8 local storage.

    Example:

        crystal doctor --offline
        crystal doctor --fix
    """
    settings = resolve()

    def look() -> list[Finding]:
        return examine(settings, offline=offline, deep=deep)

    done, checks = mend(look, (lambda _: None) if as_json else _told) if fix else ([], look())
    code = exit_code(checks)
    if as_json:
        rows = [
            {
                "name": check.name,
                "state": check.severity.value,
                "what": check.text,
                "fix": check.fix or None,
                "fixable": check.mend is not None,
            }
            for check in checks
        ]
        emit({"ok": code == 0, "done": done, "checks": rows})
        return code
    width = max(len(check.name) for check in checks)
    for check in checks:
        say(f"{_MARKS[check.severity]}  {check.name:<{width}}  {check.text}")
        if check.fix:
            say(f"    {'':<{width}}  {check.fix}")
    if not fix and any(check.mend is not None for check in checks):
        note("`crystal doctor --fix` fixes what is safe to fix.")
    elif fix and not done:
        say("There was nothing to fix that is safe to fix automatically.")
    return code


def _told(text: str) -> None:
    say(f"* {text}")
