"""``crystal status`` from the background service, which has everything loaded. With news the command itself shows it."""

import json
import os
from collections.abc import Sequence

from crystal_node.base.local_api import ask
from crystal_node.surfaces.cli.console.output import emit, say

_SECONDS_MAX = 2.0
"""Status waits for nobody: a service that hangs is no reason to."""
_PLACE = frozenset({"CRYSTAL_HOME", "CRYSTAL_KEY_STORE"})


def shown(arguments: Sequence[str], home: str) -> bool:
    """Print what `status` prints; False if the command itself has to look at it."""
    if list(arguments) not in ([], ["--json"]) or not _same_settings():
        return False
    target = "/api/status" if arguments else "/api/status/lines"
    try:
        answer = ask(home, "GET", target, seconds=_SECONDS_MAX)
        document = json.loads(answer.body) if answer.good else None
    except (OSError, ValueError):
        return False
    if document is None or document.get("has_news"):
        return False
    if arguments:
        emit(document)
        return True
    for line in document["lines"]:
        say(line)
    return True


def _same_settings() -> bool:
    """Whether the service's settings are this call's too: none but the home's place is set in the environment."""
    return not any(name.startswith("CRYSTAL_") and name not in _PLACE for name in os.environ)
