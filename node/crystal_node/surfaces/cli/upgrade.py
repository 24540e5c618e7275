"""``crystal upgrade``: upgrade this program with its installer, and restart the background service."""

import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from packaging.version import Version

from crystal_crypto.errors import CrystalError
from crystal_node.agent.service import ServiceState, manager_for
from crystal_node.base.errors import ExitCode
from crystal_node.base.settings import Settings, resolve
from crystal_node.device.installation import (
    Command,
    Installation,
    Interpreter,
    find_installation,
    version_now,
)
from crystal_node.surfaces.cli.completion import installed_scripts
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import typed_line
from crystal_node.surfaces.cli.console.terminal import is_terminal

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print the commands that would run.")]


class UpgradeFailed(CrystalError):
    """A command of the upgrade failed, or is not there."""

    exit_code = ExitCode.STORAGE
    hint = "Your memory is untouched."


def run(yes: Yes = False, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Upgrade Crystal with its installer; restart the background service.

    It recognises uv tool, pipx, pip, Homebrew and a source checkout, shows the command that upgrades it, and runs that after
    a yes. Without a terminal it only shows the command; `--yes` runs it.

    Example:

        crystal upgrade
        crystal upgrade --yes
    """
    interpreter = Interpreter.current()
    installation = find_installation(interpreter)
    commands = [shlex.join(command) for command in installation.commands]
    document: dict[str, object] = {
        "installed_by": installation.installer.value,
        "version": installation.version,
        "commands": commands,
    }
    if not as_json:
        say(f"Crystal {installation.version}, installed by {installation.installer.value}. To upgrade:")
        for command in commands:
            say(f"  {command}")
    if dry_run or not (yes or (not as_json and _agreed())):
        if as_json:
            emit(document | {"ran": False})
        return
    folder = neutral_folder(interpreter)
    for each in installation.commands:
        carry_out(each, folder)
    after = version_now()
    restarted = False
    if after:
        _renew_completion(interpreter)
        restarted = _restart(interpreter, resolve())
    if as_json:
        emit(document | {"ran": True, "version_after": after, "service_restarted": restarted})
        return
    say(outcome(installation, after))
    if restarted:
        say("The background service was restarted.")


def outcome(installation: Installation, after: str) -> str:
    """What the upgrade did. ``after`` is the version installed now, "" if there is none where Crystal was."""
    before = installation.version
    if not after:
        return "Crystal is now installed elsewhere; `crystal --version` shows which version."
    if after == before:
        return f"Crystal {before} is the newest version that {installation.installer.value} offers."
    if Version(after) < Version(before):
        return (
            f"Crystal went from {before} back to {after}. A memory that the newer version has opened may be refused by "
            f"the older one, without being changed; then install {before} again."
        )
    return f"Crystal was upgraded from {before} to {after}."


def _agreed() -> bool:
    if not is_terminal():
        note("Nothing was run, since this is no terminal. Run the command, or `crystal upgrade --yes`.")
        return False
    return typed_line("Run it now? [Y/n] ", "y").lower() in ("y", "yes")


def neutral_folder(interpreter: Interpreter) -> Path:
    """Where the upgrade's commands run: the home, else the program's environment.

    Installers may read settings where they run, so the person's working directory could choose what is installed.
    """
    home = None
    with suppress(CrystalError):  # its settings are unreadable, which an upgrade may mend
        home = resolve().home.root
    return home if home is not None and home.is_dir() else interpreter.prefix


def carry_out(command: Command, folder: Path) -> None:
    """Runs it in a folder, with its output on standard error. Raises UpgradeFailed."""
    shown = shlex.join(command)
    program = _program(command[0])
    if program is None:
        raise UpgradeFailed(
            f"{command[0]} is not on the PATH", hint=f"Your memory is untouched. Run it where it is: {shown}"
        )
    done = subprocess.run(
        (program, *command[1:]), cwd=folder, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
    )
    if done.returncode != 0:
        raise UpgradeFailed(
            f"{shown} ended with exit code {done.returncode}; its output is above",
            hint="Your memory is untouched, and the installed version still runs. Fix that, and run it again.",
        )


def _program(name: str) -> str | None:
    """Where a program is. What only the working directory has, by a relative entry of the PATH or on Windows, is none."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    found = shutil.which(name, path=os.pathsep.join(each for each in entries if Path(each).is_absolute()))
    return found if found is not None and Path(found).is_absolute() else None


def _renew_completion(interpreter: Interpreter) -> None:
    """Has the new program renew the completion scripts that are installed. It reports its own failures."""
    for shell in sorted({shell.value for shell, _ in installed_scripts()}):
        command = (interpreter.executable, "-P", "-m", "crystal_node", "completion", "install", shell)
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)


def _restart(interpreter: Interpreter, settings: Settings) -> bool:
    """Has the new program write its service file and start it, where a service is installed. Raises UpgradeFailed."""
    manager = None
    with suppress(CrystalError):  # no service manager here, so no service
        manager = manager_for(settings)
    if manager is None or manager.state() in (ServiceState.ABSENT, ServiceState.UNREACHABLE):
        return False
    command = (interpreter.executable, "-P", "-m", "crystal_node", "agent", "install")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        raise UpgradeFailed(
            "Crystal was upgraded, but its background service did not start again",
            hint="`crystal agent install` tries again; `crystal agent logs` says why.",
        )
    return True
