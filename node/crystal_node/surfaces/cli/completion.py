"""``crystal completion``: completion of commands and options in bash, zsh and fish."""

import os
import subprocess
from enum import StrEnum
from pathlib import Path
from shutil import which
from typing import Annotated

import typer
from typer.core import TyperGroup

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import ExitCode, UsageError
from crystal_node.surfaces.cli.app import COMMANDS, build
from crystal_node.surfaces.cli.console.command_tree import CommandNode, tree
from crystal_node.surfaces.cli.console.completion_scripts import MARK, SCRIPTS
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, say

group = typer.Typer(
    help="Complete commands and options in bash, zsh and fish.",
    no_args_is_help=True,
    add_completion=False,
)
_HEAD_BYTES = 300
_ZSH_SECONDS_MAX = 20
PROGRAMS = ("crystal", "crystal-relay")


class Shell(StrEnum):
    """A shell with completion scripts."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


class ForeignFile(CrystalError):
    """A script's place is taken by a file that Crystal did not write."""

    exit_code = ExitCode.STORAGE
    hint = "Move it away, or load the output of `crystal completion show` in your shell's start file."


Which = Annotated[
    Shell | None, typer.Argument(metavar="[bash|zsh|fish]", help="By default your login shell.")
]


@group.command("show")
def show(shell: Which = None) -> None:
    """Show the completion scripts of a shell.

    Example:

        crystal completion show bash
        source <(crystal completion show bash)
    """
    chosen = shell or _login_shell()
    for program in PROGRAMS:
        say(SCRIPTS[chosen](_tree(program)).rstrip("\n"))


@group.command("install")
def install(shell: Which = None, as_json: Json = False) -> None:
    """Install the scripts where the shell looks for them.

    No start file of yours is changed. If zsh searches no folder of yours, the line to add to .zshrc is printed.
    `crystal upgrade` renews the scripts.

    Example:

        crystal completion install
        crystal completion install fish
    """
    chosen = shell or _login_shell()
    line = ""
    folder = _folder(chosen)
    if chosen is Shell.ZSH:
        known = _zsh_folder()
        line = "" if known else f"fpath=({folder} $fpath); autoload -Uz compinit; compinit"
        folder = known or folder
    files = [folder / _file_name(chosen, program) for program in PROGRAMS]
    for file in files:
        _check_ours(file)
    for file, program in zip(files, PROGRAMS, strict=True):
        _write(file, SCRIPTS[chosen](_tree(program)))
    if as_json:
        emit({"shell": chosen.value, "files": [str(file) for file in files], "line": line or None})
        return
    say(f"Written: {', '.join(map(str, files))}.")
    say(
        f"zsh looks there after this line in your .zshrc:\n  {line}"
        if line
        else "It works in each new shell."
    )
    if chosen is Shell.BASH:
        say("bash needs the package bash-completion for this; most systems have it.")


@group.command("uninstall")
def uninstall(as_json: Json = False) -> None:
    """Remove the scripts of all shells.

    Example:

        crystal completion uninstall
    """
    removed = [file for _, file in installed_scripts()]
    for file in removed:
        file.unlink()
    if as_json:
        emit({"removed": [str(file) for file in removed]})
        return
    say(f"Removed: {', '.join(map(str, removed))}." if removed else "No completion scripts are installed.")


def installed_scripts() -> list[tuple[Shell, Path]]:
    """The scripts of ours that are installed."""
    folders = [(shell, _folder(shell)) for shell in Shell]
    found = _zsh_folder()
    if found is not None:
        folders.append((Shell.ZSH, found))
    files = {
        (shell, folder / _file_name(shell, program)) for shell, folder in folders for program in PROGRAMS
    }
    return sorted((shell, file) for shell, file in files if file.is_file() and _ours(file))


def _tree(program: str) -> CommandNode:
    if program == "crystal":
        return tree(program, build((), [command.name for command in COMMANDS]))
    from crystal_relay.cli.app import app as relay  # takes 0.2 s, and no other command needs it

    command = typer.main.get_command(relay)
    assert isinstance(command, TyperGroup), "the relay's program has several commands"
    return tree(program, command)


def _login_shell() -> Shell:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in list(Shell):
        raise UsageError(
            f"there is no completion for your login shell ({name or 'SHELL is not set'})",
            hint="Name one: bash, zsh or fish.",
        )
    return Shell(name)


def _folder(shell: Shell) -> Path:
    """Where the shell looks for a person's own scripts; zsh has no such place by default, so one like the others."""
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    match shell:
        case Shell.BASH:
            own = os.environ.get("BASH_COMPLETION_USER_DIR")
            return Path(own or data / "bash-completion") / "completions"
        case Shell.FISH:
            return config / "fish" / "completions"
        case Shell.ZSH:
            return data / "zsh" / "site-functions"


def _file_name(shell: Shell, program: str) -> str:
    return {Shell.BASH: program, Shell.ZSH: f"_{program}", Shell.FISH: f"{program}.fish"}[shell]


def _zsh_folder() -> Path | None:
    """The first writable folder in the person's home on their zsh's ``fpath``; None if there is none."""
    zsh = which("zsh")
    if zsh is None:
        return None
    try:
        done = subprocess.run(
            [zsh, "-ic", 'print -rl -- "" $fpath'],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ZSH_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    folders = [Path(line) for line in os.fsdecode(done.stdout).splitlines() if line.startswith("/")]
    own = [
        path
        for path in folders
        if path.is_relative_to(Path.home()) and path.is_dir() and os.access(path, os.W_OK)
    ]
    return own[0] if own else None


def _ours(file: Path) -> bool:
    with file.open("rb") as opened:
        return MARK.encode() in opened.read(_HEAD_BYTES)


def _check_ours(file: Path) -> None:
    if file.exists() and not _ours(file):
        raise ForeignFile(f"{file} is not Crystal's")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)
