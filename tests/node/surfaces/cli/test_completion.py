"""Completion, in the shells themselves where they are installed."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from crystal_node.surfaces.cli.app import COMMANDS, build
from crystal_node.surfaces.cli.console.command_tree import CommandNode, tree
from crystal_node.surfaces.cli.console.completion_scripts import MARK, SCRIPTS
from tests.support.machine import Machine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root() -> CommandNode:
    return tree("crystal", build((), [command.name for command in COMMANDS]))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    home = tmp_path / "home"
    home.mkdir()
    folders = {"XDG_DATA_HOME": str(home / ".local" / "share"), "XDG_CONFIG_HOME": str(home / ".config")}
    # fish loads the scripts of commands that exist, and no others.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return Machine(home, {"PATH": path, "SHELL": "/bin/bash", "TERM": "dumb", "ZDOTDIR": str(home)} | folders)


def needs(shell: str) -> str:
    found = which(shell)
    if found is None:
        pytest.skip(f"there is no {shell}")
    return found


def offered_by_bash(script: Path, lines: list[list[str]]) -> list[set[str]]:
    """What bash offers after the words of each line, of which the last is being typed."""
    calls = "\n".join(
        f'COMP_WORDS=({" ".join(map(_quoted, words))}); COMP_CWORD={len(words) - 1}; _crystal; echo "${{COMPREPLY[*]}}"'
        for words in lines
    )
    done = subprocess.run(
        [needs("bash"), "--norc", "-c", f"source {_quoted(str(script))}\n{calls}"],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stderr == ""
    return [set(line.split()) for line in done.stdout.splitlines()]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def test_bash_offers_every_command_and_option_at_its_place(root: CommandNode, tmp_path: Path) -> None:
    script = tmp_path / "crystal"
    script.write_text(SCRIPTS["bash"](root))
    nodes = list(root.walk())
    assert len(nodes) > 100
    commands = offered_by_bash(script, [[*node.path, ""] for node in nodes])
    options = offered_by_bash(script, [[*node.path, "-"] for node in nodes])
    for node, found, dashed in zip(nodes, commands, options, strict=True):
        choices = {choice for argument in node.arguments for choice in argument.choices}
        assert found == {each.path[-1] for each in node.commands} | choices, node.path
        assert dashed == {name for option in node.options for name in option.names}, node.path


def test_bash_offers_the_values_of_an_option_and_knows_its_place_behind_options(
    root: CommandNode, tmp_path: Path
) -> None:
    script = tmp_path / "crystal"
    script.write_text(SCRIPTS["bash"](root))
    node, option = next((node, option) for node in root.walk() for option in node.options if option.choices)
    values, behind, free = offered_by_bash(
        script,
        [
            [*node.path, option.names[0], ""],
            ["crystal", "devices", "--json", "re"],
            ["crystal", "search", "--since", ""],
        ],
    )
    assert values == set(option.choices)
    assert behind == {"revoke", "rename", "renew-keys"}
    assert free == set(), "files, by the shell itself"


def test_bash_loads_it_by_itself_where_bash_completion_is_there(machine: Machine) -> None:
    loader = Path("/usr/share/bash-completion/bash_completion")
    if not loader.exists():
        pytest.skip("there is no bash-completion")
    machine.call("completion", "install")
    ask = "_completion_loader crystal; complete -p crystal"
    done = subprocess.run(
        [needs("bash"), "--norc", "-ic", f"source {loader}; {ask}"],
        env=machine.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "_crystal crystal" in done.stdout, done.stderr


def test_fish_completes_after_an_installation(machine: Machine) -> None:
    fish = needs("fish")
    machine.call("completion", "install", "fish")
    ask = "complete -C 'crystal devices re'; complete -C 'crystal search --sin'; complete -C 'crystal-relay tok'"
    done = subprocess.run(
        [fish, "-c", ask], env=machine.environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [
        "rename",
        "renew-keys",
        "revoke",
        "--since",
        "tokens",
    ]


def test_zsh_completes_after_an_installation(machine: Machine) -> None:
    zsh = needs("zsh")
    said = machine.call("completion", "install", "zsh", "--json").json
    assert said["line"] is not None, "zsh looks in no folder of a person's own by itself"
    with Terminal([zsh, "-f", "-i"], machine.environment) as terminal:
        terminal.type(
            f"PS1='ready> '; {said['line'].replace('compinit; compinit', 'compinit; compinit -u')}\r"
        )
        terminal.until("ready> ")
        terminal.type("crystal devices re\t")
        assert "Revoke a device for good" in terminal.until("Revoke a device for good")


def test_zsh_is_given_a_folder_of_the_persons_own_if_it_has_one(machine: Machine) -> None:
    needs("zsh")
    own = machine.root / "functions"
    own.mkdir()
    (machine.root / ".zshrc").write_text(f"fpath=({own} $fpath)\n")
    said = machine.run("completion", "install", "zsh", "--json").json
    assert (said["files"], said["line"]) == ([str(own / "_crystal"), str(own / "_crystal-relay")], None)
    assert set(machine.run("completion", "uninstall", "--json").json["removed"]) == set(said["files"])
    assert list(own.iterdir()) == []


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        ours, theirs = pty.openpty()
        self._ours = ours
        self._process = subprocess.Popen(
            command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def until(self, text: str) -> str:
        """What it says until ``text`` is among it."""
        said = ""
        deadline = time.monotonic() + 100
        while text not in said:
            assert time.monotonic() < deadline, said
            if select.select([self._ours], [], [], 1)[0]:
                said += os.read(self._ours, 65536).decode(errors="replace")
        return said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_an_installation_is_repeatable_and_its_end_leaves_nothing(shell: str, machine: Machine) -> None:
    before = set(files_of(machine.root))
    first = machine.call("completion", "install", shell, "--json").json["files"]
    texts = [Path(file).read_text() for file in first]
    assert machine.call("completion", "install", shell, "--json").json["files"] == first
    assert [Path(file).read_text() for file in first] == texts
    assert all(MARK in text for text in texts)
    assert set(files_of(machine.root)) - before == {Path(file) for file in first}, "no start file was changed"
    assert sorted(machine.call("completion", "uninstall", "--json").json["removed"]) == sorted(first)
    assert set(files_of(machine.root)) == before
    assert "No completion scripts are installed" in machine.call("completion", "uninstall").out


def files_of(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def test_a_file_of_another_program_is_neither_replaced_nor_removed(machine: Machine) -> None:
    folder = machine.root / ".local" / "share" / "bash-completion" / "completions"
    folder.mkdir(parents=True)
    compilers = folder / "crystal"
    compilers.write_text("complete -W 'build run' crystal\n")
    refused = machine.call("completion", "install", "bash", check=False)
    assert refused.code == 8
    assert "is not Crystal's" in refused.err
    assert list(folder.iterdir()) == [compilers], "nothing was half done"
    machine.call("completion", "uninstall")
    assert compilers.read_text() == "complete -W 'build run' crystal\n"


def test_an_unknown_login_shell_is_told_what_there_is(machine: Machine) -> None:
    machine.extra["SHELL"] = "/bin/tcsh"
    refused = machine.call("completion", "install", "--json", check=False)
    assert refused.code == 2
    assert "tcsh" in refused.error["error"]
    assert "bash, zsh or fish" in json.dumps(refused.error)
