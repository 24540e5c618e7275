"""``crystal doctor``: what is wrong with this machine's Crystal, and what mends it."""

from typing import Annotated

import typer

from crystal_node.cli.options import Debug, Json
from crystal_node.cli.output import emit, say

Offline = Annotated[bool, typer.Option("--offline", help="Ask nobody: leave the relay out.")]

_MARKS = {"ok": "ok", "warning": "!!", "failed": "XX"}


def run(offline: Offline = False, as_json: Json = False, debug: Debug = False) -> int:
    """Check this device: permissions, keys, passphrase, databases, device log, recovery kit, relay and clock.

    Says of each thing how it is and what mends it. The exit code is 0 when nothing failed, warnings or not, else the code of
    the first thing that failed: 3 not set up, 4 the relay cannot be reached, 5 it refuses this device, 7 a wrong key or
    passphrase, 8 local storage.

    Example:

        crystal doctor --offline
    """
    from crystal_node.health.doctor import examine, exit_code
    from crystal_node.settings import resolve

    checks = examine(resolve(), offline=offline)
    code = exit_code(checks)
    if as_json:
        rows = [
            {"name": check.name, "state": check.state.value, "what": check.what, "fix": check.fix or None}
            for check in checks
        ]
        emit({"ok": code == 0, "checks": rows})
        return code
    width = max(len(check.name) for check in checks)
    for check in checks:
        say(f"{_MARKS[check.state]}  {check.name:<{width}}  {check.what}")
        if check.fix:
            say(f"    {'':<{width}}  {check.fix}")
    return code
