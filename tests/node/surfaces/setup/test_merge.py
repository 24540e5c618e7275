"""A machine with a memory of its own joins another vault: the memory goes along, and nothing is lost wherever it is killed."""

import contextlib
import json
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import apsw
import pytest

from crystal_node.device.bridge import BridgeReport, write_bridge
from crystal_node.device.journal import SqliteJournal
from crystal_node.surfaces.setup import merge
from tests.support.machine import Machine, Outcome, Vault, transcript
from tests.support.terminal import terminal
from tests.support.user_manager import UserManager, with_manager

OWN = ["The buoy was repainted.", "The pier got a lamp."]


@pytest.fixture
def code(vault: Vault, alone: Machine) -> str:
    """The offline code of the other vault, whose Core has read one of the transcripts that the machine has, too."""
    transcript(vault.core, "The lighthouse was painted.")
    _reads_notes(vault.core, "The ferry leaves at the flood.")
    vault.core.call("capture")
    vault.core.call("sync")
    return str(vault.core.call("pair", "--offline", "--yes", "--json").json["code"])


@pytest.fixture
def alone(machine: Machine, vault: Vault) -> Machine:
    """Set up without a relay, with conversations, memories, a source and a file."""
    transcript(machine, OWN[0])
    shared = transcript(vault.core, OWN[1], name="shared")
    shutil.copytree(shared.parent, machine.projects / shared.parent.name, dirs_exist_ok=True)
    machine.call("up", "--no-service", "--no-mcp", "--no-hooks", "--yes", "--name", "boat")
    machine.call("remember", "The harbour closes at ten.")
    machine.call("sync")
    _reads_notes(machine, "The tide table hangs in the hall.")
    soul = machine.home / "agents" / "claude-code" / "SOUL.md"
    soul.parent.mkdir(parents=True, exist_ok=True)
    soul.write_text("Speaks of boats.")
    return machine


def _reads_notes(machine: Machine, text: str) -> None:
    notes = machine.root / "notes"
    notes.mkdir()
    (notes / "tide.md").write_text(text)
    machine.call("sources", "add", str(notes))


@pytest.fixture
def manager(alone: Machine) -> Generator[UserManager]:
    found = with_manager(alone)
    yield found
    found.stop_all()


def _up(machine: Machine, vault: Vault, code: str, *more: str) -> Outcome:
    return machine.call(
        *("up", "--code", "-", "--relay", vault.relay.url, "--no-service", "--no-mcp", "--no-hooks"),
        *("--yes", "--json", *more),
        typed=f"{code}\n",
        check=False,
    )


def _again(machine: Machine) -> Outcome:
    return machine.call("up", "--no-service", "--no-mcp", "--no-hooks", "--yes", "--json", check=False)


def _said(machine: Machine) -> list[str]:
    """The texts of all messages in the memory, each as often as it stands there."""
    with contextlib.closing(apsw.Connection(str(machine.home / "memory" / "crystal.db"))) as memory:
        query = "SELECT c.text FROM occurrences o JOIN chunks c ON c.rowid = o.chunk WHERE o.role <> ''"
        return sorted(text for (text,) in memory.execute(query))


def _whole(machine: Machine, vault: Vault) -> None:
    """The vault has everything once, on both machines, and nothing is left of the former home."""
    machine.call("sync")
    vault.core.call("sync")
    machine.call("sync")
    for each in (machine, vault.core):
        for text in (*OWN, "The lighthouse was painted.", "The harbour closes at ten."):
            assert each.found(text)[0] == text
        assert _said(each) == sorted([*OWN, "The lighthouse was painted."]), "each once"
    assert [text for text in vault.core.found("tide table") if "tide table hangs" in text]
    assert (vault.core.home / "agents" / "claude-code" / "SOUL.md").read_text() == "Speaks of boats."
    status = machine.call("status", "--json").json
    assert status["vault"] == vault.core.call("status", "--json").json["vault"]
    assert status["outbox"]["pending"] == 0
    assert sorted(path.name for path in machine.home.parent.glob(".ldm*")) == [".ldm"]
    assert not (machine.home / "state" / "merge.json").exists()
    assert not (machine.home / "state" / "relay").exists()
    assert machine.call("capture", "--json").json["messages"] == 0, "no transcript is read again"


def test_its_memory_goes_along_and_its_own_vault_ends(
    alone: Machine, vault: Vault, code: str, manager: UserManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone.call("up", "--yes")
    [before] = manager.running()
    late = alone.home / "agents" / "claude-code" / "LATE.md"
    real: Callable[[Path, Path], None] = getattr(merge, "_rename")  # noqa: B009  it is private

    def rename(source: Path, target: Path) -> None:
        if source == alone.home:
            late.write_text("Written while files were copied.")
        real(source, target)

    monkeypatch.setattr(merge, "_rename", rename)
    done = _up(alone, vault, code)
    assert done.code == 0, done.out + done.err
    steps = {
        event["name"]: event for event in map(json.loads, done.out.splitlines()) if event["event"] == "step"
    }
    assert steps["vault"]["state"] == steps["former-home"]["state"] == "done"
    assert "2 messages of its own went along" in steps["vault"]["text"]
    assert late.read_text() == "Written while files were copied."
    [service] = manager.running()
    assert service != before
    assert {each["name"] for each in alone.call("sources", "status", "--json").json["sources"]} == {
        "notes",
        "notes-2",
    }
    _whole(alone, vault)


class Killed(BaseException):
    """Stands for SIGKILL."""


POINTS = [
    ("prepare", "after"),
    ("import_device", "before"),
    ("import_device", "after"),
    ("_send", "after"),
    ("alone", "before"),
    ("carry_on", "before"),
    ("carry_on", "after"),
    ("_copy_file", "before"),
    ("_copy_file", "after"),
    ("copy_keyring_entries", "after"),
    ("_rename", "before"),
    ("_rename", "after"),
    ("copy_keyring_entries", "before"),
    ("copy_keyring_entries", "after"),
    ("_rename", "before"),
    ("_rename", "after"),
    ("delete_keyring_entries", "before"),
    ("delete_keyring_entries", "after"),
    ("import_device", "before"),
    ("_send", "after"),
    ("write_private", "after"),
    ("rmtree", "before"),
    ("rmtree", "half"),
    ("rmtree", "after"),
]
"""Where the runs of one merge are killed, one after the other."""


def _kill_at(patch: pytest.MonkeyPatch, name: str, when: str) -> list[str]:
    """Has the next call of that function end as if the process were killed there. Returns what was reached."""
    reached: list[str] = []
    holder: Any = shutil if name == "rmtree" else merge.Merge if name == "prepare" else merge
    real: Callable[..., Any] = getattr(holder, name)

    def killed(*arguments: Any, **options: Any) -> Any:
        reached.append(name)
        if when == "half":
            (Path(arguments[0]) / "config.json").unlink()
        if when == "after":
            real(*arguments, **options)
        raise Killed

    patch.setattr(holder, name, killed)
    return reached


def test_killed_at_each_step_it_goes_on_and_nothing_is_lost_or_doubled(
    alone: Machine, vault: Vault, code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entries = tmp_path / "keyring.json"
    alone.extra |= {
        "PYTHON_KEYRING_BACKEND": "tests.support.kept_keyring.Keyring",
        "KEPT_KEYRING": str(entries),
        "CRYSTAL_KEY_STORE": "keyring",
    }
    alone.call("keys", "move", "--to", "keyring")
    own = alone.call("status", "--json").json["vault"]
    for name, when in POINTS:
        with monkeypatch.context() as patch:
            reached = _kill_at(patch, name, when)
            ended = _again(alone) if _joined(alone) else _up(alone, vault, code)
        assert reached == [name], f"{name} {when} was not reached: {ended.out}{ended.err}"
        if (alone.home / "config.json").exists():
            assert alone.found("buoy") == [OWN[0]], f"{name} {when}: it can be searched all the time"
            assert (alone.call("status", "--json").json["vault"] == own) is not (
                alone.home / "state" / "merge.json"
            ).exists()
    done = _again(alone)
    assert done.code == 0, done.out + done.err
    _whole(alone, vault)
    services = {each.split()[0] for each in json.loads(entries.read_text())}
    assert len(services) == 1, "of the homes that were made and removed no key is left"


def test_what_is_forgotten_meanwhile_is_forgotten_in_the_other_vault(
    alone: Machine, vault: Vault, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        assert _kill_at(patch, "_send", "after") == []
        _up(alone, vault, code)
    vault.core.call("sync")
    assert OWN[0] in _said(vault.core)
    [hit] = [hit for hit in alone.call("search", "--json", "buoy").json["results"] if hit["text"] == OWN[0]]
    alone.call("forget", hit["id"], "--yes")
    done = _again(alone)
    assert done.code == 0, done.out + done.err
    alone.call("sync")
    vault.core.call("sync")
    assert _said(vault.core) == sorted([OWN[1], "The lighthouse was painted."])


def _joined(machine: Machine) -> bool:
    return (machine.root / ".ldm.joining").exists() or (machine.home / "state" / "merge.json").exists()


def test_what_would_be_lost_is_said_and_no_enter_allows_it(alone: Machine, vault: Vault, code: str) -> None:
    [hit] = [hit for hit in alone.call("search", "--json", "buoy").json["results"] if hit["text"] == OWN[0]]
    alone.call("forget", hit["id"], "--yes")
    with contextlib.closing(SqliteJournal.open(alone.home / "state" / "state.db")) as journal:
        write_bridge(journal, BridgeReport("https://old.example"))
    refused = _up(alone, vault, code)
    assert refused.code == 2
    assert "what you forgot (1 text)" in refused.error["error"]
    assert "the bridge from https://old.example: set it up again" in refused.error["error"]
    with terminal(alone, "up", "--code", "-", "--no-service", TERM="dumb") as shown:
        shown.until("what you forgot (1 text)")
        shown.until("Go on?")
        shown.type("\n")
        shown.until("Go on?", times=2)
        shown.type("no\n")
        shown.end()
    assert alone.call("status", "--json").json["relay"] == "local"
    with terminal(
        alone, "up", "--code", "-", "--relay", vault.relay.url, "--no-service", TERM="dumb"
    ) as shown:
        shown.until("Go on?")
        shown.type("yes\n")
        shown.until("The code that")
        shown.type(f"{code}\n")
        assert shown.end() == 0, shown.shown
    alone.call("sync")
    vault.core.call("sync")
    assert _said(vault.core) == ["The lighthouse was painted.", OWN[1]]
    assert alone.call("capture", "--json").json["messages"] == 0, (
        "what was forgotten is in the transcript still"
    )
