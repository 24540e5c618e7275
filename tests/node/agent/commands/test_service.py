"""The desk of an agent on a real device and relay: stopped, killed, beside another process, told how far an action is."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crystal_mirror.commands.deletion import CLAIMS_MS, ENTRIES_MS, LOOK_MS, expire
from crystal_mirror.commands.messages import RESULT_BYTES_MAX, Action, Arguments, CommandState
from crystal_node.agent.commands.client import (
    CommandResult,
    ask_core,
    ask_device,
    command_result,
    find_asked,
    open_database,
    refresh,
)
from crystal_node.agent.commands.database import CommandsDamaged, SqliteCommandDatabase
from crystal_node.agent.commands.service import (
    PROGRESS_SECONDS,
    ActionHandler,
    ActionResult,
    CommandService,
    Tell,
)
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NoSuchEntry, UsageError
from crystal_node.base.events import WatchEvent
from crystal_node.device.device import Device, opened
from crystal_node.sync.syncer import Syncer, syncing
from tests.support.invited import settings_of
from tests.support.machine import Machine, Vault
from tests.support.watchers import until

Reported = list[tuple[WatchEvent, str]]


@pytest.fixture
def node(vault: Vault) -> Machine:
    """A Node of a vault of two, whose Core's desk has looked once."""
    machine = vault.add()
    vault.settle()

    async def look_once() -> None:
        async with a_desk(vault.core, {}) as (desk, *_):
            await desk.look()

    asyncio.run(look_once())
    return machine


@asynccontextmanager
async def a_desk(
    machine: Machine, actions: dict[Action, ActionHandler]
) -> AsyncGenerator[tuple[CommandService, Device, Syncer, Reported]]:
    told: Reported = []
    with opened(settings_of(machine)) as device:
        async with syncing(device, "a test's agent") as syncer:
            desk = CommandService(device, syncer, actions, lambda event, text: told.append((event, text)))
            try:
                yield desk, device, syncer, told
            finally:
                desk.close()


def asks(node: Machine, action: Action, arguments: Arguments | None = None) -> str:
    return asyncio.run(ask_core(settings_of(node), action, arguments)).id


def known(node: Machine, request: str) -> CommandResult:
    """What the Node knows of a request, once it has looked."""
    with opened(settings_of(node)) as device, open_database(device.settings) as book:
        assert asyncio.run(refresh(device, book)) == ""
        return command_result(find_asked(book, request))


def serves(machine: Machine, actions: dict[Action, ActionHandler]) -> Reported:
    async def once() -> Reported:
        async with a_desk(machine, actions) as (desk, _, _, told):
            await desk.look()
            await desk.run_due()
            return told

    return asyncio.run(once())


def counting(
    runs: list[Arguments], then: Callable[[Tell], Awaitable[ActionResult]] | None = None
) -> ActionHandler:
    async def do(arguments: Arguments, tell: Tell) -> ActionResult:
        runs.append(arguments)
        return ActionResult("as you wish", {"ran": len(runs)}) if then is None else await then(tell)

    return do


def test_arguments_go_there_and_the_result_comes_back(vault: Vault, node: Machine) -> None:
    runs: list[Arguments] = []
    given = Arguments(agent="main", mode="full", since="7d", dry_run=True, limit=12)
    request = asks(node, Action.DREAM_WEAVE, given)
    serves(vault.core, {Action.DREAM_WEAVE: counting(runs)})
    assert runs == [given]
    told = known(node, request)
    assert (told.state, told.text, told.result) == (CommandState.DONE, "as you wish", {"ran": 1})
    assert told.document()["state"] == "done"


@pytest.mark.parametrize("action", [Action.DREAM_WEAVE, Action.VERIFY])
def test_an_agent_that_is_stopped_while_an_action_runs(vault: Vault, node: Machine, action: Action) -> None:
    runs: list[Arguments] = []
    request = asks(node, action)

    async def stopped() -> None:
        started = asyncio.Event()

        async def hang(_tell: Tell) -> ActionResult:
            started.set()
            await asyncio.Event().wait()
            raise AssertionError("it hangs")

        async with a_desk(vault.core, {action: counting(runs, hang)}) as (desk, *_):
            running = asyncio.create_task(desk.run())
            await asyncio.wait_for(started.wait(), 30)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    asyncio.run(stopped())
    serves(vault.core, {action: counting(runs)})
    told = known(node, request)
    once = action is Action.DREAM_WEAVE
    assert told.state is (CommandState.UNKNOWN if once else CommandState.DONE)
    assert len(runs) == (1 if once else 2)


def test_an_action_that_fails_by_a_mistake_is_told_and_the_desk_goes_on(vault: Vault, node: Machine) -> None:
    async def mistaken(_tell: Tell) -> ActionResult:
        raise ZeroDivisionError

    runs: list[Arguments] = []
    bad, good = asks(node, Action.VERIFY), asks(node, Action.STATUS)
    actions = {Action.VERIFY: counting([], mistaken), Action.STATUS: counting(runs)}
    told = serves(vault.core, actions)
    assert known(node, bad).state is CommandState.FAILED
    assert "ZeroDivisionError" in known(node, bad).text
    assert known(node, good).state is CommandState.DONE
    assert any("failed" in text for _, text in told)


def test_a_result_that_is_too_large_is_left_out_and_the_rest_told(vault: Vault, node: Machine) -> None:
    async def much(_tell: Tell) -> ActionResult:
        return ActionResult("x" * 10_000, {"much": "y" * RESULT_BYTES_MAX})

    request = asks(node, Action.STATUS)
    serves(vault.core, {Action.STATUS: counting([], much)})
    told = known(node, request)
    assert told.state is CommandState.DONE
    assert told.result.keys() == {"left_out"}
    assert len(told.text) == 500


def test_how_far_it_is_is_told_now_and_then_from_any_thread(
    vault: Vault, node: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PROGRESS_SECONDS >= 5, "each of them is a write"
    seen: list[CommandResult] = []

    async def slow(tell: Tell) -> ActionResult:
        for done in (1, 2, 3):
            await asyncio.to_thread(tell, "reading", done, 3)
        while not seen or seen[-1].done == 0:
            await asyncio.sleep(0.05)
            seen.append(await asyncio.to_thread(known, node, request))
        return ActionResult("read")

    request = asks(node, Action.BACKFILL)
    serves(vault.core, {Action.BACKFILL: counting([], slow)})
    assert (seen[-1].state, seen[-1].text, seen[-1].done, seen[-1].total) == (
        CommandState.RUNNING,
        "reading",
        1,
        3,
    )


def test_of_two_processes_of_one_home_one_runs_what_waits(vault: Vault, node: Machine) -> None:
    runs: list[Arguments] = []
    asks(node, Action.VERIFY)

    async def both() -> None:
        async def slow(_tell: Tell) -> ActionResult:
            await asyncio.sleep(0.3)
            return ActionResult("done")

        actions = {Action.VERIFY: counting(runs, slow)}
        async with a_desk(vault.core, actions) as (one, *_), a_desk(vault.core, actions) as (other, *_):
            await one.look()
            await asyncio.gather(one.run_due(), other.run_due())
            await other.run_due()

    asyncio.run(both())
    assert len(runs) == 1


def test_who_waits_is_told_at_once(vault: Vault, node: Machine) -> None:
    """The whole way, asker and desk both on their long-polls."""

    async def both() -> CommandResult:
        async with a_desk(vault.core, {Action.STATUS: counting([])}) as (desk, *_):
            serving = asyncio.create_task(desk.run())
            with opened(settings_of(node)) as device:
                outcome = await ask_device(device, None, Action.STATUS, wait=30)
            serving.cancel()
            return outcome

    assert asyncio.run(both()).state is CommandState.DONE


def test_the_relay_takes_the_cores_word_on_what_to_delete(vault: Vault, node: Machine) -> None:
    request = asks(node, Action.STATUS)
    serves(vault.core, {Action.STATUS: counting([])})

    async def run() -> None:
        async with a_desk(vault.core, {}) as (desk, device, syncer, _):
            await desk.tidy()
            for later in (ENTRIES_MS + LOOK_MS, CLAIMS_MS + 2 * LOOK_MS):
                assert await syncer.run(expire(device.member, now_ms() + later))

    asyncio.run(run())
    assert known(node, request).state is CommandState.DONE


def test_a_request_is_named_by_its_first_digits(node: Machine) -> None:
    request = asks(node, Action.STATUS)
    with open_database(settings_of(node)) as book:
        assert find_asked(book, request[:6]).id.hex() == request
        for wrong, error in (("zz", UsageError), ("abc", UsageError), ("0" * 32, NoSuchEntry)):
            with pytest.raises(error):
                find_asked(book, wrong)


def test_a_book_that_is_none_is_told_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "commands.db"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(CommandsDamaged):
        SqliteCommandDatabase.open(path)
    assert path.read_bytes().startswith(b"not a database")
    fresh = tmp_path / "fresh.db"
    SqliteCommandDatabase.open(fresh).close()
    assert fresh.stat().st_mode & 0o777 == 0o600


def test_a_device_that_has_not_synced_for_long_can_ask(vault: Vault, node: Machine) -> None:
    """The Core's list is newer than the place in the mirror at which this device stood."""
    for number in range(3):
        vault.core.call("remember", f"fact {number}")
        vault.core.call("sync")
    vault.core.root.joinpath(".ldm/state/commands.db").unlink()
    serves(vault.core, {})
    request = asks(node, Action.STATUS)
    serves(vault.core, {Action.STATUS: counting([])})
    assert known(node, request).state is CommandState.DONE


@pytest.mark.parametrize("action", [Action.DREAM_WEAVE, Action.VERIFY])
def test_an_agent_that_is_killed_while_an_action_runs(
    vault: Vault, node: Machine, tmp_path: Path, action: Action
) -> None:
    mark = tmp_path / "mark"
    request = asks(node, action)
    killed = subprocess.Popen(
        [sys.executable, "-m", "tests.node.agent.commands.killed_service", action, str(mark)],
        env=vault.core.environment | {"PYTHONPATH": str(Path(__file__).parents[4])},
    )
    until(mark.exists, "the action runs")
    assert known(node, request).state is CommandState.RUNNING
    killed.kill()
    killed.wait()
    runs: list[Arguments] = []
    serves(vault.core, {action: counting(runs)})
    once = action is Action.DREAM_WEAVE
    assert known(node, request).state is (CommandState.UNKNOWN if once else CommandState.DONE)
    assert len(runs) == (0 if once else 1)
