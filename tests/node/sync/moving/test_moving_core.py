"""Moving the Core with real processes and a real relay, while everybody goes on recording: nothing is lost, and it is quick."""

import asyncio
import contextlib
import json
import signal
import sqlite3
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

import pytest

from crystal_node.device.device import opened
from tests.node.sync.administration.test_devices import device_id
from tests.node.sync.administration.test_revoked_watchers import until, watching
from tests.support.invited import invite, settings_of
from tests.support.machine import Machine, Vault, transcript, turn

PLANNED_SECONDS_MAX = 60.0
SETTLES_SECONDS_MAX = 60.0


class Traffic:
    """Somebody works on each of these machines: a line of a transcript every few moments, until it is stopped."""

    def __init__(self, machines: list[Machine]) -> None:
        self.said: list[str] = []
        self._stop = threading.Event()
        self._paths = [
            transcript(machine, f"The work on {machine.root.name} begins.") for machine in machines
        ]
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        number = 0
        while not self._stop.wait(0.15):
            for path in self._paths:
                number += 1
                text = f"Remark {number:05d} of {path.parents[3].name}."
                with path.open("a", encoding="utf-8") as file:
                    file.write(turn(text, session="session"))
                self.said.append(text)


@contextmanager
def traffic(*machines: Machine) -> Generator[Traffic]:
    working = Traffic(list(machines))
    try:
        yield working
    finally:
        working.stop()


def role(machine: Machine) -> str:
    return str(machine.call("role", "--json").json["role"])


def empty(machine: Machine) -> bool:
    outbox = machine.call("status", "--json").json["outbox"]
    return int(outbox["pending"]) == 0


def settled(vault: Vault) -> bool:
    return all(empty(machine) for machine in vault.machines) and len(vault.digests()) == 1


def remembered(machine: Machine) -> set[str]:
    """All texts that every device has of the vault, as this machine's database holds them."""
    database = settings_of(machine).home.database
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return {text for (text,) in connection.execute("SELECT text FROM chunks WHERE provisional = 0")}


def check_nothing_is_lost(vault: Vault, said: list[str]) -> None:
    until(partial(settled, vault), SETTLES_SECONDS_MAX)
    for machine in vault.machines:
        found = remembered(machine)
        missing = [text for text in said if text not in found]
        assert not missing, f"{machine.root.name} lacks {len(missing)} of {len(said)}: {missing[:3]}"
        status = machine.call("status", "--json").json
        assert (status["quarantined"], status["notices"]) == (0, [])


@pytest.fixture
def three(vault: Vault) -> Vault:
    """A Core, a laptop that may lead, and a phone that may not."""
    laptop, phone = invite(vault, "laptop"), invite(vault, "phone")
    vault.core.call("devices", "grant", "laptop")
    for machine in (vault.core, laptop, phone):
        machine.call("sync")
    return vault


def test_the_core_moves_under_traffic_in_seconds_and_nothing_is_lost(three: Vault) -> None:
    laptop, phone = three.nodes
    with watching(*three.machines):
        with traffic(*three.machines) as working:
            until(lambda: len(working.said) > 30, SETTLES_SECONDS_MAX)
            promoted = laptop.run("promote", "--json")
            until(lambda: len(working.said) > 90, SETTLES_SECONDS_MAX)
        assert promoted.json["way"] == "planned"
        assert promoted.json["seconds"] < PLANNED_SECONDS_MAX
        check_nothing_is_lost(three, working.said)
        assert [role(machine) for machine in (three.core, laptop, phone)] == ["node", "core", "node"]


def test_the_core_gives_the_lead_to_a_machine_without_a_grant_under_traffic(three: Vault) -> None:
    laptop, phone = three.nodes
    with watching(*three.machines):
        with traffic(*three.machines) as working:
            until(lambda: len(working.said) > 30, SETTLES_SECONDS_MAX)
            given = three.core.run("demote", "--to", "phone", "--json")
        assert (given.json["way"], given.json["begun"]) == ("given", True)
        assert given.json["seconds"] < PLANNED_SECONDS_MAX
        check_nothing_is_lost(three, working.said)
        assert [role(machine) for machine in (three.core, laptop, phone)] == ["node", "node", "core"]


def test_a_core_that_is_killed_under_traffic_is_replaced_and_comes_back_as_a_node(three: Vault) -> None:
    laptop, phone = three.nodes
    with traffic(*three.machines) as working, watching(three.core) as (core,), watching(laptop, phone):
        until(lambda: len(working.said) > 60, SETTLES_SECONDS_MAX)
        core.process.send_signal(signal.SIGKILL)
        core.process.wait(SETTLES_SECONDS_MAX)
        started = time.monotonic()
        promoted = laptop.run("promote", "--force", "--yes", "--json")
        assert time.monotonic() - started < 60
        assert promoted.json["way"] == "forced"
        until(lambda: len(working.said) > 120, SETTLES_SECONDS_MAX)
        # What was said on the dead Core's machine since is in its transcript; it comes with the rest.
        with watching(three.core):
            working.stop()
            check_nothing_is_lost(three, working.said)
            assert [role(machine) for machine in (three.core, laptop, phone)] == ["node", "core", "node"]


def test_a_core_that_sleeps_is_named_and_nothing_has_changed(three: Vault) -> None:
    laptop = three.nodes[0]
    refused = laptop.call("promote", "--wait", "1", "--json", check=False)
    assert refused.code == 11
    assert "--force" in refused.error["hint"]
    three.core.call("remember", "After the request was withdrawn.")
    three.settle()
    assert role(three.core) == "core"
    assert "After the request was withdrawn." in laptop.found("request withdrawn")


def test_a_lead_that_is_offered_to_a_machine_that_sleeps_stays_where_it_is(three: Vault) -> None:
    phone = three.nodes[1]
    assert three.core.call("demote", "--to", "nobody", "--json", check=False).code == 10
    own = str(three.core.call("status", "--json").json["device"])
    itself = three.core.call("demote", "--to", own, "--json", check=False)
    assert itself.code == 2
    assert "that is this machine" in itself.err
    assert phone.call("demote", "--to", "laptop", "--json", check=False).code == 7
    refused = three.core.call("demote", "--to", "phone", "--wait", "1", "--json", check=False)
    assert refused.code == 11
    assert "phone" in refused.error["error"]
    for machine in (phone, three.core, phone):
        machine.call("sync")
    assert role(three.core) == "core"


def test_a_core_that_only_syncs_now_and_then_hands_over_while_it_is_waited_for(three: Vault) -> None:
    laptop = three.nodes[0]
    promoting = laptop.start("promote", "--wait", "30", "--json")
    until(partial(_lets_go, three.core), SETTLES_SECONDS_MAX)
    out, err = promoting.communicate(timeout=SETTLES_SECONDS_MAX)
    assert promoting.returncode == 0, err
    assert json.loads(out)["way"] == "planned"


def test_a_machine_without_a_grant_names_who_can_give_it_and_goes_on_when_it_came(three: Vault) -> None:
    phone = three.nodes[1]
    refused = phone.call("promote", "--json", check=False)
    core = three.core.call("status", "--json").json["name"]
    assert refused.code == 3
    assert core in refused.error["error"]
    assert "crystal devices grant phone" in refused.error["hint"]
    three.core.call("commands", "list")  # looks at the relay, as the background service does
    asks = "asks to be allowed to become the Core"
    assert asks in three.core.call("status").out
    assert asks not in three.nodes[0].call("status").out
    promoting = phone.start("promote", "--wait", "120", "--json")
    assert promoting.stderr is not None
    until(lambda: "grant phone" in promoting.stderr.readline(), SETTLES_SECONDS_MAX)  # type: ignore[union-attr]
    three.core.call("devices", "grant", "phone")
    assert asks not in three.core.call("status").out
    until(partial(_lets_go, three.core), SETTLES_SECONDS_MAX)
    out, err = promoting.communicate(timeout=SETTLES_SECONDS_MAX)
    assert promoting.returncode == 0, err
    assert json.loads(out)["way"] == "planned"
    assert role(phone) == "core"


def _lets_go(machine: Machine) -> bool:
    machine.call("sync")
    return role(machine) == "node"


def test_a_promotion_that_is_killed_while_it_waits_leaves_the_core_the_core_and_may_be_repeated(
    three: Vault,
) -> None:
    laptop = three.nodes[0]
    promoting = laptop.start("promote", "--wait", "60", "--json")
    assert promoting.stderr is not None
    until(lambda: "asked" in promoting.stderr.readline(), SETTLES_SECONDS_MAX)  # type: ignore[union-attr]
    promoting.kill()
    promoting.communicate()
    three.core.call("remember", "The work goes on.")
    for machine in (three.core, laptop, three.core):
        machine.call("sync")
    assert role(three.core) == "core"
    assert laptop.call("promote", "--json").json["way"] == "planned", (
        "the Core holds for it still, and it goes on"
    )


def test_a_frozen_vault_records_on_and_is_ended_by_a_promotion(three: Vault) -> None:
    laptop, phone = three.nodes
    assert three.core.call("demote", "--freeze", "--json", typed="no\n", check=False).code == 2
    assert three.core.call("demote", "--freeze", "--yes", "--json").json == {
        "way": "frozen",
        "epoch": 2,
        "core": None,
    }
    phone.call("remember", "Said while nobody led.")
    for machine in three.machines:
        machine.call("sync")
        shown = machine.call("role", "--json").json
        assert (shown["role"], shown["core"], shown["frozen"]) == ("node", None, True)
        assert "frozen" in machine.call("role").out
        assert "frozen" in machine.call("status").out
        assert machine.call("doctor", check=False).code in (0, 1)
    refused = laptop.call("devices", "rename", "phone", "telephone", "--json", check=False)
    assert refused.code == 7
    assert "promote" in refused.error["hint"]
    assert phone.call("promote", "--json", check=False).code == 3, "it has no grant"
    assert laptop.call("promote", "--json").json["way"] == "unfrozen"
    for machine in (phone, laptop, three.core, phone):
        machine.call("sync")
    assert "Said while nobody led." in three.core.found("nobody led")
    assert len(three.digests()) == 1


def test_role_says_who_leads_since_when_by_whom_and_how_far_everybody_is(three: Vault) -> None:
    laptop, phone = three.nodes
    phone.call("remember", "Not sent yet.")
    shown = laptop.call("role", "--json").json
    assert shown["core"]["id"] == device_id(three.core)
    assert shown["since"]["slot"] > 0
    assert {row["id"] for row in shown["devices"]} == {device_id(each) for each in three.machines}
    assert shown["forced_promotion"] == {"loses": [], "core_pending": 0, "needs_kit": False}
    assert "would lose nothing" in laptop.call("role").out
    assert three.core.call("role", "--json").json["forced_promotion"] is None


def test_a_machine_that_may_not_lead_says_so_before_it_asks_anything(vault: Vault) -> None:
    phone = invite(vault, "phone")
    vault.settle()
    assert phone.call("role", "--json").json["forced_promotion"]["needs_kit"] is True
    assert "needs the recovery kit (`crystal promote --force --kit -`)" in phone.call("role").out
    refused = phone.call("promote", "--force", typed="promote\n", check=False)
    assert refused.code == 3
    assert "may not take the lead" in refused.err
    assert "Type promote" not in refused.err


def test_a_promotion_by_force_that_would_lose_something_names_the_device_and_is_refused(three: Vault) -> None:
    laptop, phone = three.nodes
    three.core.call("remember", "Applied by the phone alone.")
    for machine in (three.core, phone):
        machine.call("sync")
    asyncio.run(_lose_the_last_entry(three.core))
    shown = laptop.call("role", "--json").json["forced_promotion"]
    assert device_id(phone) in [loss["id"] for loss in shown["loses"]]
    assert "would lose something" in laptop.call("role").out
    refused = laptop.call("promote", "--force", "--yes", "--json", check=False)
    assert refused.code == 6
    assert "phone" in refused.error["error"]
    assert "--accept-loss" in refused.error["hint"]
    assert role(laptop) == "node"
    assert laptop.call("promote", "--force", "--accept-loss", "--yes", "--json").json["way"] == "forced"
    for machine in (phone, three.core, laptop, phone, laptop, three.core, phone):
        machine.call("sync")
    assert len(three.digests()) == 1
    assert "Applied by the phone alone." in laptop.found("applied by the phone"), "it was offered again"


async def _lose_the_last_entry(core: Machine) -> None:
    with opened(settings_of(core)) as device:
        position = device.member.replica.position()
        async with device.at_relay() as relay:
            await relay.delete(device.member.keys.mirror(position.epoch, position.sequence - 1))
