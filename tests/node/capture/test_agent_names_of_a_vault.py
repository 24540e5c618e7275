"""A vault calls Claude Code's agent by its former name: a new home that reads the same transcripts doubles nothing."""

import shutil
from pathlib import Path

import pytest

from crystal_core.database import Database
from crystal_mirror.operations import Capture, Piece
from crystal_node.base.home import Home
from crystal_node.base.settings import read_config
from crystal_node.device.agent_name import named_as_before
from tests.core.builders import NOW, apply, new_replica, origin
from tests.support.machine import Machine, Vault, transcript
from tests.support.recovery import fresh_machine, kit_of

FORMER, PRESENT = "cc-mini", "claude-code"
_TEXTS = ("The tide gauge stands on the old pier.", "Its battery lasts for two winters.")


def _places(machine: Machine) -> list[tuple[str, str]]:
    """Agent and text of all that was said, each once: what waits here may be ordered already."""
    with Database.open(Home(machine.home).database) as database:
        return sorted(
            database.rows(
                "SELECT agent, text FROM occurrences o JOIN chunks c ON c.rowid = o.chunk UNION"
                " SELECT agent, text FROM provisional_places p JOIN chunks c ON c.rowid = p.chunk"
                " WHERE category IS NULL AND path IS NULL"
            )
        )


@pytest.fixture
def old(vault: Vault) -> Machine:
    """A Core that was set up when the agent had its former name, and recorded a conversation so."""
    config = vault.core.home / "config.json"
    config.write_text(config.read_text().replace(f'"{PRESENT}"', f'"{FORMER}"'))
    transcript(vault.core, *_TEXTS)
    vault.core.call("capture")
    vault.core.call("sync")
    assert _places(vault.core) == sorted((FORMER, text) for text in _TEXTS)
    return vault.core


def _with_its_transcripts(old: Machine, folder: Path) -> Machine:
    new = fresh_machine(folder)
    shutil.copytree(old.root / ".claude", new.root / ".claude")
    return new


@pytest.mark.parametrize("named", ["", PRESENT])
@pytest.mark.parametrize("steps", [("sync", "capture"), ("capture", "sync", "capture"), ("capture", "sync")])
def test_a_second_machine_with_the_same_transcripts_doubles_nothing(
    old: Machine, vault: Vault, tmp_path: Path, steps: tuple[str, ...], named: str
) -> None:
    new = _with_its_transcripts(old, tmp_path)
    new.extra = {"CRYSTAL_AGENT_ID": named} if named else {}
    new.call("pair", "--code", "-", "--relay", vault.relay.url, "--name", "new", typed=vault.code() + "\n")
    for step in steps:
        new.call(step)
    transcript(new, "It was painted in spring.")
    new.call("capture")
    for machine in (new, old, new):
        machine.call("sync")
    expected = sorted((FORMER, text) for text in (*_TEXTS, "It was painted in spring."))
    assert _places(new) == _places(old) == expected
    assert read_config(new.home / "config.json").agent == FORMER


def test_a_newcomer_says_what_waits_and_reads_it_after_the_first_sync(
    old: Machine, vault: Vault, tmp_path: Path
) -> None:
    new = fresh_machine(tmp_path)
    transcript(new, "Only this machine heard it.")
    new.call("pair", "--code", "-", "--relay", vault.relay.url, "--name", "new", typed=vault.code() + "\n")
    waiting = new.call("capture", "--json").json
    assert (waiting["waiting"], waiting["operations"]) == (1, 0)
    assert "after a sync that brings the vault's memory" in new.call("capture").err
    refused = new.call("backfill", "--dry-run", "--json", check=False)
    assert (refused.code, "crystal sync" in refused.error["hint"]) == (2, True)
    new.call("sync")
    done = new.call("capture", "--json").json
    assert (done["waiting"], done["messages"]) == (0, 1)
    assert _places(new)[0] == (FORMER, "Its battery lasts for two winters.")


def test_up_on_a_second_machine_records_what_the_vault_lacks_at_once(
    old: Machine, vault: Vault, tmp_path: Path
) -> None:
    new = _with_its_transcripts(old, tmp_path)
    transcript(new, "Only this machine heard it.", name="other")
    join = ("up", "--code", "-", "--relay", vault.relay.url, "--no-service", "--yes")
    new.call(*join, typed=vault.code() + "\n")
    for machine in (new, old):
        machine.call("sync")
    assert _places(old) == sorted((FORMER, text) for text in (*_TEXTS, "Only this machine heard it."))


def test_a_home_that_the_kit_restores_doubles_nothing(old: Machine, vault: Vault, tmp_path: Path) -> None:
    kit, expected = kit_of(old), _places(old)
    new = _with_its_transcripts(old, tmp_path)
    shutil.rmtree(old.root)
    new.call("recovery", "restore", "--relay", vault.relay.url, "--claim", typed=kit)
    new.call("capture")
    new.call("sync")
    assert _places(new) == expected
    assert read_config(new.home / "config.json").agent == FORMER


def test_a_home_that_lost_its_databases_doubles_nothing(old: Machine, vault: Vault) -> None:
    expected, code = _places(old), vault.code()
    config = old.home / "config.json"
    config.write_text(config.read_text().replace(f'"{FORMER}"', f'"{PRESENT}"'))
    for path in old.home.glob("state/state.db*"):
        path.unlink()
    Home(old.home).database.unlink()
    old.call("pair", "--code", "-", "--relay", vault.relay.url, typed=code + "\n")
    for step in ("capture", "sync", "capture", "sync"):
        old.call(step)
    assert _places(old) == expected


def _said(agent: str, session: str, text: str) -> Capture:
    return Capture(agent, session, "", "", PRESENT, (Piece(text, "user", NOW, text, 0),))


def test_a_session_goes_on_under_the_name_it_has_in_the_memory() -> None:
    replica = new_replica()
    apply(replica, _said(FORMER, "former", "one"), _said(PRESENT, "present", "two"))
    apply(replica, _said(FORMER, "both", "three"), _said(PRESENT, "both", "three"))
    replica.index_provisional(origin(100), _said(FORMER, "pending", "four"))
    for agent in (FORMER, PRESENT):
        asked = [_said(agent, each, "new") for each in ("former", "present", "both", "pending", "none", "")]
        names = [each.agent for each in named_as_before(replica.database, asked)]
        assert names == [FORMER, PRESENT, agent, FORMER, agent, agent]
    (other,) = named_as_before(replica.database, [_said("codex", "former", "new")])
    assert other.agent == "codex"
