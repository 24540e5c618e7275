"""What lay in the prototype's staging, and at the place of its earlier versions, comes in once, whatever else had it."""

import json
from pathlib import Path

import pytest

from crystal_node.capture.exclusions import Exclusion, Exclusions
from crystal_node.capture.imported import IMPORTED_SOURCE
from crystal_prototype.home.staged import Staged, staging_of
from tests.prototype.home import prototypes
from tests.prototype.home.test_database import SESSION, joined, of_session, transcript, tree
from tests.prototype.test_bridge import OldDevices, bridge, old
from tests.support.machine import Machine, Vault

__all__ = ["old"]
QUESTION, ANSWER = "Where was the anchor left?", "Below the eastern jetty."
FIRST, SECOND = "2026-01-09T10:00:00.250Z", "2026-01-09T10:00:04.500Z"


def message(role: str, text: str, moment: str, session: str = SESSION) -> dict[str, str]:
    """One message, as the prototype's devices send it."""
    return {"text": text, "role": role, "timestamp": moment, "sessionId": session}


def stage(home: Path, agent: str, name: str, *lines: object) -> Path:
    path = home / "staging" / agent / "transcripts" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return home / "staging"


def test_each_form_of_a_line_is_read_and_others_are_counted(tmp_path: Path) -> None:
    dropped = {"agent_id": "../x", "messages": [message("user", "In a drop.", FIRST, "s2"), {"role": "user"}]}
    claude = {
        "type": "assistant",
        "uuid": "00000000-0000-4000-8000-000000000001",
        "sessionId": SESSION,
        "timestamp": SECOND,
        "message": {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
    }
    plain = message("user", QUESTION, FIRST, f"cc:{SESSION}")
    private = message("user", "Only <private>hers</private>.", FIRST)
    folder = stage(tmp_path, "cc-air", "one", plain, dropped, claude, "{torn", 7, "", private)
    stage(tmp_path, "cc air/..", "two", {"text": "Without a session.", "role": "owner"})
    staged = Staged(folder, "cc-mini")
    records = list(staged.records())
    assert [
        (each.agent, each.session, each.role, each.text) for each in records if each.agent == "cc-air"
    ] == [
        ("cc-air", SESSION, "user", QUESTION),
        ("cc-air", "s2", "user", "In a drop."),
        ("cc-air", SESSION, "assistant", ANSWER),
        ("cc-air", SESSION, "user", "Only ."),
    ]
    assert staged.unread == 3, "a message without a text, a torn line, a number"
    assert {each.source for each in records} == {IMPORTED_SOURCE}
    assert records[0].created_at == 1_767_952_800_250
    assert staging_of(tmp_path) == staging_of(folder) == folder
    assert staging_of(tmp_path / "staging" / "cc-air") is None


def test_a_staged_line_of_an_excluded_project_stays_out_and_a_sub_agents_is_known_as_that(
    tmp_path: Path,
) -> None:
    line = {"type": "user", "sessionId": SESSION, "timestamp": FIRST}
    diary, work = tmp_path / "diary", tmp_path / "work"
    folder = stage(
        tmp_path,
        "cc-air",
        "one",
        line | {"uuid": "1", "cwd": str(diary), "message": {"role": "user", "content": "Dear diary."}},
        line
        | {
            "uuid": "2",
            "cwd": str(work),
            "isSidechain": True,
            "message": {"role": "user", "content": QUESTION},
        },
    )
    staged = Staged(folder, "cc-mini", tmp_path, Exclusions(tmp_path, [Exclusion(folder="~/diary")]))
    assert [(each.role, each.text) for each in staged.records()] == [("subagent-user", QUESTION)]
    assert (staged.excluded, staged.unread) == (1, 0)


@pytest.mark.parametrize(
    "order",
    [
        ("staged", "captured", "in the database"),
        ("captured", "in the database", "staged"),
        ("in the database", "staged", "captured"),
    ],
    ids=lambda order: f"{order[0]} first",
)
def test_a_staged_conversation_comes_in_once_whatever_else_has_it(
    vault: Vault, tmp_path: Path, order: tuple[str, ...]
) -> None:
    core = vault.core
    folder = stage(
        tmp_path, "cc-mini", SESSION, message("user", QUESTION, FIRST), message("assistant", ANSWER, SECOND)
    )
    database = prototypes.database(tmp_path / "memory" / "crystal.db")
    prototypes.say(
        database, (QUESTION, "user", f"cc:{SESSION}", FIRST), (ANSWER, "assistant", f"cc:{SESSION}", SECOND)
    )
    transcript(core, ("user", QUESTION, FIRST), ("assistant", ANSWER, SECOND))
    before = tree(tmp_path / "staging")
    steps = {
        "staged": ("migrate-db", str(folder)),
        "captured": ("capture",),
        "in the database": ("migrate-db", str(database)),
    }
    for name in order:
        core.call(*steps[name])
        core.call("sync")
    again = core.call("migrate-db", str(tmp_path), "--json").json
    assert (again["new"], again["unread"]) == (0, 0)
    assert again["paths"] == [str(database), str(folder)]
    assert sorted(of_session(vault, tmp_path / "export", SESSION)) == sorted([QUESTION, ANSWER])
    assert tree(tmp_path / "staging") == before


def test_a_drop_that_was_staged_and_comes_over_the_bridge_too_comes_in_once(
    vault: Vault, old: OldDevices, tmp_path: Path
) -> None:
    core = vault.core
    said = ("user", "The tide table is on the door.", "2026-01-10T10:00:00.000Z")
    stage(tmp_path, "cc-air", "any", message(*said, session="s9"))
    core.call("migrate-db", str(tmp_path))
    bridge(core, old)
    old.say(said, session="s9")
    assert core.call("bridge", "run", "--json").json["messages"] == 0
    core.call("sync")
    assert core.found("tide table") == ["The tide table is on the door."]


def test_without_a_path_all_that_is_on_the_machine_comes_in(vault: Vault, machine: Machine) -> None:
    prototypes.home(machine.home)
    stage(machine.home, "cc-air", "s8", message("user", "Staged and never taken in.", FIRST, "s8"))
    former = prototypes.database(machine.root / ".openclaw" / "memory-crystal" / "crystal.db")
    prototypes.say(former, ("Said before the move.", "user", "cc:7", "2025-12-01T10:00:00Z"))
    shown = machine.call("takeover", "--yes").out
    copy = next(machine.root.glob(f"{machine.home.name}-prototype-*"))
    for each in (copy / "memory" / "crystal.db", former, copy / "staging"):
        assert f"crystal migrate-db {each}" in shown
    joined(vault, machine)
    done = machine.call("migrate-db", "--json").json
    assert done["paths"] == [str(copy / "memory" / "crystal.db"), str(former), str(copy / "staging")]
    assert machine.call("migrate-db", "--json").json["new"] == 0
    machine.call("sync")
    for text in (
        "Staged and never taken in.",
        "Said before the move.",
        "We raised the retry budget to nine.",
    ):
        assert text in machine.found(text)


def test_where_there_is_nothing_it_says_what_to_give(vault: Vault, tmp_path: Path) -> None:
    for given in ((), (str(tmp_path),)):
        refused = vault.core.call("migrate-db", *given, "--json", check=False)
        assert refused.code == 2
        assert "memory/crystal.db" in refused.error["hint"]
