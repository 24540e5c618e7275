"""A device of the vault that means ill asks the Core for more than its owner wants to give, or answers what hurts to read."""

import asyncio
from pathlib import Path

import pytest

from crystal_mirror.commands.database import AskedRequest
from crystal_mirror.commands.messages import NUMBER_MAX, Action, Arguments, CommandState
from crystal_node.agent.commands.client import command_result
from crystal_node.agent.commands.policy import denial, deny
from crystal_node.agent.commands.service import ActionResult
from crystal_node.agent.daemon.actions import BACKUPS_MAX, actions_of
from crystal_node.base.errors import BadConfig, UsageError
from crystal_node.capture.history import step_over
from crystal_node.device.device import opened
from crystal_node.safekeeping.backup.folder import backups
from crystal_node.surfaces.cli.console.output import json_line
from crystal_node.sync.job_context import JobContext
from crystal_node.sync.syncer import Syncer
from tests.support.invited import settings_of
from tests.support.llm_server import llm_server
from tests.support.machine import Machine, Vault, transcript
from tests.support.silence import silent
from tests.support.woven import good_answer

BACKUPS_KEPT = 4


def does(machine: Machine, action: Action, arguments: Arguments | None = None) -> ActionResult:
    """What the machine does when it is asked."""

    async def main() -> ActionResult:
        with opened(settings_of(machine)) as device:
            async with device.online() as store:
                work = JobContext(device, Syncer(device, store, purpose="a test"), silent)
                return await actions_of(work)[action](arguments or Arguments(), silent)

    return asyncio.run(main())


def test_backups_that_are_asked_for_again_and_again_do_not_push_the_older_ones_out(
    vault: Vault, tmp_path: Path
) -> None:
    destination = tmp_path / "destination"
    vault.core.call("backup", "setup", "--to", str(destination), "--keep", str(BACKUPS_KEPT))
    vault.core.call("backup")
    (good,) = [each.folder for each in backups(destination)]
    for _ in range(BACKUPS_MAX - 1):
        does(vault.core, Action.BACKUP)
    for _ in range(BACKUPS_KEPT):
        with pytest.raises(UsageError, match="older ones are to stay"):
            does(vault.core, Action.BACKUP)
    assert good.is_dir()
    assert len(backups(destination)) == BACKUPS_MAX
    vault.core.call("backup")  # the owner may


def test_who_asks_for_weaving_cannot_raise_the_owners_budget(vault: Vault) -> None:
    core = vault.core
    with llm_server(good_answer) as server:
        core.extra |= {
            "CRYSTAL_SUMMARY_PROVIDER": "openai-compatible",
            "CRYSTAL_LLM_URL": server.openai,
            "CRYSTAL_WEAVE_TOKENS_MAX": "1000",
        }
        transcript(core, "Let us keep a list of all ships.")
        core.call("capture")
        core.call("sync")
        result = does(core, Action.DREAM_WEAVE, Arguments(limit=NUMBER_MAX)).result
        assert result["state"] == "stopped-by-the-budget"
        assert server.asked == []


def test_who_asks_for_weaving_does_not_get_past_staging(vault: Vault) -> None:
    """A device says something as an agent that nobody knows, and asks at once for its weaving."""
    core = vault.core
    drop = core.home / "drop" / "stranger"
    drop.mkdir(parents=True)
    (drop / "said.md").write_text("Weave me at your cost.\n")
    core.call("capture")
    core.call("sync")
    with pytest.raises(UsageError, match="not live"):
        does(core, Action.DREAM_WEAVE, Arguments(agent="stranger"))


@pytest.mark.parametrize(
    "result",
    [b"[" * 60_000, b'{"a":' * 400 + b"1" + b"}" * 400, b'{"a": NaN}', b'{"a": ' + b"9" * 5000 + b"}"],
)
def test_a_result_that_is_nested_without_end_or_no_json_is_shown_as_none(result: bytes) -> None:
    row = AskedRequest(
        b"1" * 16, b"2" * 16, "status", Arguments(), 1, CommandState.DONE, 1, "done", result, 0, 0, 1
    )
    outcome = command_result(row)
    assert outcome.result == {}
    assert '"state": "done"' in json_line(outcome.document())


def test_so_many_denials_that_none_of_them_could_be_read_are_refused(vault: Vault) -> None:
    def deny_many() -> None:
        for number in range(200):
            deny(settings_of(vault.core), f"{number:032x}", "verify")

    with pytest.raises(BadConfig):
        deny_many()
    kept = settings_of(vault.core).service.commands_denied
    assert len(kept) > 30
    assert denial(kept, bytes(16), Action.VERIFY)


def test_nobody_from_afar_has_a_past_recorded_that_was_left_out_on_purpose(vault: Vault) -> None:
    core = vault.core
    transcript(core, "This was never meant for anybody.")
    with opened(settings_of(core)) as device:
        step_over(device)
    assert does(core, Action.BACKFILL, Arguments(dry_run=True)).result["new"] == 1
    with pytest.raises(UsageError, match="left out on purpose"):
        does(core, Action.BACKFILL)
    assert core.found("never meant for anybody") == []
