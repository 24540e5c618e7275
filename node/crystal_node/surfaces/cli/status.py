"""``crystal status``: how this device stands, without asking anybody."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from crystal_node.surfaces.cli.options import Debug, Json
from crystal_node.surfaces.cli.output import emit, say

if TYPE_CHECKING:
    from crystal_node.base.settings import Settings
    from crystal_node.device.device import Device

Watching = Annotated[
    bool,
    typer.Option(
        "--watch", "-w", help="Go on, and show each change, until Ctrl-C. With --json: a document a line."
    ),
]


def run(watch: Watching = False, as_json: Json = False, debug: Debug = False) -> None:
    """Show this device's standing: role, devices, what waits and for how long, what is stuck, why, and what to do.

    It asks nobody and waits for nobody: it works without a network, and beside a running agent.

    Example:

        crystal status
        crystal status --watch
    """
    from crystal_node.base.settings import resolve

    settings = resolve()
    with _opened(settings) as device:
        from crystal_node.agent.health.standing import standing

        if watch:
            from crystal_node.surfaces.cli.status_watch import follow

            follow(device, as_json=as_json)
            return
        found = standing(device)
        if as_json:
            from crystal_node.agent.health.document import status_document

            emit(status_document(device, found))
            return
        import apsw

        from crystal_node.surfaces.cli.status_lines import news_lines, status_lines
        from crystal_node.sync.members.newsdesk import mark_all_shown

        for line in (*status_lines(device, found), *news_lines(device)):
            say(line)
        with suppress(
            apsw.BusyError, apsw.FullError, apsw.IOError, apsw.ReadOnlyError
        ):  # then it is shown once more
            mark_all_shown(device.member)


@contextmanager
def _opened(settings: "Settings") -> "Generator[Device]":
    """The device; where its disk keeps it from being opened, the error says so."""
    from crystal_node.agent.health.disks import disks_of
    from crystal_node.base.errors import ExitCode, LocalStorage, describe
    from crystal_node.device.device import Device

    try:
        device = Device.open(settings)
    except Exception as error:
        failure = describe(error)
        trouble = [disk for disk in disks_of(settings.home) if disk.low or disk.read_only]
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
