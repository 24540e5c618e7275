"""A machine for tests: a home folder, its own environment, and the real `crystal` command.

`run` starts a process, as a person does; `call` runs the same entry point inside the test's process, for tests that make
many calls. Both give exit code, standard output and standard error.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import keyring.core

from crystal_node.surfaces import cli
from crystal_node.surfaces.cli import main
from tests.support import programs
from tests.support.relay_process import RelayProcess

SECONDS_MAX = 230.0
_WITHOUT_NETWORK = frozenset({"capture", "forget", "remember", "search", "status", "verify"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The JSON document on standard output."""
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def error(self) -> dict[str, Any]:
        """The JSON document at the end of standard error."""
        document: dict[str, Any] = json.loads(self.err[self.err.index("{") :])
        return document


@dataclass
class Machine:
    """One device of a person. `root` stands for the person's home folder."""

    root: Path
    extra: dict[str, str] = field(default_factory=dict[str, str])
    prefix: tuple[str, ...] = ()
    """Comes before each command: `nsenter` for a machine with a network of its own. `call` heeds it when it needs that."""
    fresh: bool = False
    """Its processes are interpreters of their own from the start; see `tests.support.programs`."""

    @property
    def home(self) -> Path:
        return self.root / ".ldm"

    @property
    def projects(self) -> Path:
        return self.root / ".claude" / "projects"

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("CRYSTAL_", "CLAUDE_"))
        }
        return kept | {"HOME": str(self.root), "CRYSTAL_KEY_STORE": "file"} | self.extra

    def run(self, *arguments: str, typed: str = "", check: bool = True, **variables: str) -> Outcome:
        """Runs `crystal` in a process of its own."""
        result = programs.run(
            "crystal_node",
            arguments,
            env=self.environment | variables,
            prefix=self.prefix,
            fresh=self.fresh,
            typed=typed,
            timeout=SECONDS_MAX,
        )
        return _checked(Outcome(result.returncode, result.stdout, result.stderr), arguments, check=check)

    def call(self, *arguments: str, typed: str = "", check: bool = True, **variables: str) -> Outcome:
        """Runs `crystal`'s entry point in this process, which may dump core afterwards as before."""
        if self.prefix and arguments[0] not in _WITHOUT_NETWORK:
            return self.run(*arguments, typed=typed, check=check, **variables)
        with (
            mock.patch.object(cli, "_forbid_core_dumps"),
            mock.patch.object(keyring.core, "_keyring_backend", None),  # the library chooses once a process
            mock.patch.dict(os.environ, self.environment | variables, clear=True),
            _streams(typed) as (out, err),
        ):
            code = main(arguments)
            return _checked(Outcome(code, _text(out), _text(err)), arguments, check=check)

    def start(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        """Starts a `crystal` process that goes on by itself. The caller ends it."""
        return programs.started(
            "crystal_node",
            arguments,
            env=self.environment | variables,
            prefix=self.prefix,
            fresh=self.fresh,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def found(self, query: str, *more: str) -> list[str]:
        """The texts that a search finds."""
        return [hit["text"] for hit in self.call("search", "--json", *more, "--", query).json["results"]]


@dataclass
class Vault:
    """A Core and Nodes of one vault, at one relay. `machine` makes what a device runs on."""

    relay: RelayProcess
    folder: Path
    machine: Callable[[Path], Machine] = Machine
    core: Machine = field(init=False)
    nodes: list[Machine] = field(default_factory=list[Machine])

    def __post_init__(self) -> None:
        self.core = self.machine(self.folder / "core")
        self.core.root.mkdir(parents=True)
        token = self.relay.enroll_token
        self.core.call(
            "init", "--role", "core", "--relay", self.relay.url, "--yes", CRYSTAL_RELAY_ENROLL_TOKEN=token
        )

    @property
    def machines(self) -> list[Machine]:
        return [self.core, *self.nodes]

    def code(self) -> str:
        return str(self.core.call("pair", "--offline", "--yes", "--json").json["code"])

    def add(self) -> Machine:
        """A new machine that joins."""
        machine = self.machine(self.folder / f"node-{len(self.nodes) + 1}")
        machine.root.mkdir()
        named = (
            "--name",
            machine.root.name,
        )  # machines that share a host name would be told apart by nothing
        machine.call("pair", "--code", "-", "--relay", self.relay.url, *named, typed=self.code() + "\n")
        self.nodes.append(machine)
        return machine

    def settle(self) -> None:
        """Syncs until everything has gone round: Nodes send, the Core orders, all take it over, outboxes empty."""
        for machine in (*self.nodes, self.core, *self.nodes, self.core):
            machine.call("sync")

    def digests(self) -> set[str]:
        """The digests of all machines, each computed from its rows."""
        return {str(machine.call("verify", "--json").json["digest"]) for machine in self.machines}


def turn(
    text: str, *, session: str = "", role: str = "user", moment: str = "2026-01-05T09:00:00.000Z", **more: Any
) -> str:
    """A line of a transcript in which somebody says `text`."""
    record: dict[str, Any] = {
        "type": role,
        "uuid": str(uuid.uuid4()),
        "parentUuid": None,
        "sessionId": session or "5f0c6f0e-0b5e-4d0e-9a52-0f3f9f0f0a00",
        "timestamp": moment,
        "cwd": "/home/someone/work",
        "version": "2.0.0",
        "isSidechain": False,
        "message": {"role": role, "content": text},
    }
    return json.dumps(record | more) + "\n"


def transcript(machine: Machine, *texts: str, name: str = "session") -> Path:
    """A transcript where Claude Code keeps them, with these texts; more are added to it when it is there."""
    path = machine.projects / "-home-someone-work" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(turn(text, session=name) for text in texts)
    return path


def core_that_heard(relay: RelayProcess, directory: Path, *texts: str) -> Machine:
    """The Core of a new vault, with a conversation in its memory."""
    machine = Vault(relay, directory).core
    transcript(machine, *texts)
    machine.call("capture")
    machine.call("sync")
    return machine


def _checked(outcome: Outcome, arguments: tuple[str, ...], *, check: bool) -> Outcome:
    assert not check or outcome.code == 0, (
        f"crystal {' '.join(arguments)}: {outcome.code}\n{outcome.out}{outcome.err}"
    )
    return outcome


@contextlib.contextmanager
def _streams(typed: str) -> Generator[tuple[io.BytesIO, io.BytesIO]]:
    out, err = io.BytesIO(), io.BytesIO()
    names: Mapping[str, io.TextIOWrapper] = {
        "stdin": io.TextIOWrapper(io.BytesIO(typed.encode()), encoding="utf-8"),
        "stdout": io.TextIOWrapper(out, encoding="utf-8", write_through=True),
        "stderr": io.TextIOWrapper(err, encoding="utf-8", write_through=True),
    }
    with contextlib.ExitStack() as stack:
        for name, stream in names.items():
            stack.enter_context(mock.patch.object(sys, name, stream))
        try:
            yield out, err
        finally:
            for stream in names.values():
                stream.detach()


def _text(stream: io.BytesIO) -> str:
    return stream.getvalue().decode("utf-8")
