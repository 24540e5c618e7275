"""A path below the home of somebody unknown is refused with the reason, by every command that takes one."""

import pytest

from crystal_core.search.judge import JudgeUnavailable
from crystal_node.models.judge import CrossEncoderJudge
from tests.support.machine import Machine, Vault

NOWHERE = "~nobody-of-that-name/folder"


@pytest.mark.parametrize(
    "command",
    [
        ("backup", "--to", NOWHERE),
        ("backup", "list", "--to", NOWHERE),
        ("backup", "setup", "--to", NOWHERE),
        ("backup", "verify", NOWHERE),
        ("restore", "--from", NOWHERE, "--yes"),
        ("sources", "add", NOWHERE),
    ],
)
def test_a_home_that_is_not_known_is_named(vault: Vault, command: tuple[str, ...]) -> None:
    refused = vault.core.call(*command, check=False)
    assert refused.code == 2
    assert "the home folder of ~nobody-of-that-name is not known on this machine" in refused.err
    assert "Write the whole path" in refused.err


def test_a_new_machine_names_it_as_well(machine: Machine) -> None:
    refused = machine.call("backup", "restore", NOWHERE, check=False)
    assert refused.code == 2
    assert "the home folder of ~nobody-of-that-name is not known on this machine" in refused.err


def test_a_judge_below_such_a_home_is_not_there() -> None:
    judge = CrossEncoderJudge(NOWHERE)
    with pytest.raises(JudgeUnavailable, match="home folder of ~nobody-of-that-name"):
        judge.prepare()
