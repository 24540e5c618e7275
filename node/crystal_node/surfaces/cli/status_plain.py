"""``crystal status`` with plain arguments: from the background service, which has everything loaded, else by this process.

Neither loads the argument parser. If there is news, this process prints the status, and the news then counts as shown.
"""

import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from crystal_node.base.local_api import ask
from crystal_node.surfaces.cli.console.output import emit, say

if TYPE_CHECKING:
    from crystal_node.base.settings import Settings
    from crystal_node.device.device import Device

_SECONDS_MAX = 2.0
"""Status waits for nobody: a service that hangs is no reason to."""
_PLACE = frozenset({"CRYSTAL_HOME", "CRYSTAL_KEY_STORE"})


def shown(arguments: Sequence[str], home: str) -> bool:
    """Print what `status` prints; False if the command itself has to look at it. Raises what gathering it raises."""
    if list(arguments) not in ([], ["--json"]):
        return False
    if not (_same_settings() and _told(arguments, home)):
        show(as_json=bool(arguments))
    return True


def _told(arguments: Sequence[str], home: str) -> bool:
    """Print what the background service says; False if there is none, or news."""
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


def show(*, as_json: bool) -> None:
    """Gather the status in this process, and print it."""
    import apsw

    from crystal_node.agent.health.status import device_status, status_document
    from crystal_node.agent.health.status_lines import news_lines, status_lines
    from crystal_node.base.settings import resolve
    from crystal_node.sync.members.news import mark_all_shown

    with opened_device(resolve()) as device:
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
def opened_device(settings: "Settings") -> "Generator[Device]":
    """The device. If its disk prevents that, the error says so."""
    from crystal_node.agent.health.facts import free_space
    from crystal_node.base.errors import ExitCode, LocalStorage, describe
    from crystal_node.device.device import Device

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
