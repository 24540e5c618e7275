"""What was forgotten leaves the journals that were woven of it, though the process dies on the way, or the lead has moved."""

import os
from hashlib import sha256
from pathlib import Path
from unittest import mock

import pytest

from crystal_core.weaver.documents import REFERENCE
from crystal_core.weaver.records import Method
from crystal_node.base.settings import resolve
from crystal_node.derive.weaving import forget as forgetting
from crystal_node.derive.weaving.weave import open_database
from crystal_node.device.device import opened
from tests.support.machine import Machine, Vault, transcript

SECRET = "The door code is 4711."


class Killed(BaseException):
    """The process ends here."""


def woven(core: Machine) -> Path:
    """The journal of what was said, by no model."""
    transcript(core, SECRET, "We decided to use teak.")
    core.call("capture")
    core.call("sync")
    core.call("dream-weave", "--provider", "none", "--yes")
    (journal,) = core.home.rglob("journals/*.md")
    assert SECRET in journal.read_text()
    return journal


def forget(machine: Machine) -> None:
    (found,) = [
        hit for hit in machine.call("search", "--json", "door code").json["results"] if hit["text"] == SECRET
    ]
    machine.call("forget", found["id"])


def let_go(core: Machine) -> int:
    with mock.patch.dict(os.environ, core.environment, clear=True):
        settings = resolve()
        with opened(settings) as device, open_database(settings.home) as database:
            return forgetting.remove_forgotten(device, database)


@pytest.mark.parametrize("step", ["_write_journal", "_write_reference", "_write_context", "has_let_go"])
def test_killed_between_any_two_steps_the_next_run_takes_it_out(vault: Vault, step: str) -> None:
    core = vault.core
    journal = woven(core)
    forget(core)
    with mock.patch.object(forgetting, step, side_effect=Killed):
        ended = core.call("sync", check=False)  # which lets go where no agent runs
    assert "Killed" in ended.err
    assert let_go(core) == 1
    assert SECRET not in journal.read_text()
    assert let_go(core) == 0
    assert [path for path in core.home.rglob("*.md") if SECRET in path.read_text()] == []


def test_a_device_that_leads_no_more_lets_go_in_its_journals_and_leaves_the_next_cores_pages(
    vault: Vault,
) -> None:
    node = vault.add()
    journal = woven(vault.core)
    vault.settle()
    node.call("promote", "--force", "--yes")
    vault.settle()
    reference = journal.parents[2] / REFERENCE
    with (
        mock.patch.dict(os.environ, vault.core.environment, clear=True),
        open_database(resolve().home) as database,
    ):
        database.set_written(
            reference.parent.name, REFERENCE, sha256(b"as it was once").digest(), Method.EXTRACTIVE
        )
    reference.write_text("As the next Core wrote it.\n")
    forget(node)
    vault.settle()
    vault.settle()
    assert SECRET not in journal.read_text()
    assert reference.read_text() == "As the next Core wrote it.\n"
    theirs = node.home / journal.relative_to(vault.core.home)
    assert SECRET not in theirs.read_text()
