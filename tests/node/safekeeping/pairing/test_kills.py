"""Either process killed at each of its requests, before it reached the relay or after it took effect: both start over
cleanly, and the newcomer is in the vault once."""

import contextlib
import re
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.fault_proxy import Fault, FaultProxy, fault_proxy
from tests.support.machine import Machine, Vault
from tests.support.pairing import Side, hurried, inviting, joining, members, pair

_INVITER = {
    "opening the mailbox": "POST .*/invites",
    "the offer": "PUT .*/offer",
    "the reveal": "PUT .*/reveal",
    "the log entry": "PUT .*/devlog/",
    "the token": "POST .*/tokens",
    "the welcome": "PUT .*/welcome",
    "closing the mailbox": "DELETE .*/invites/",
}
_NEWCOMER = {
    "asking after the invite": ("GET .*/invites/", 1),
    "the offer": ("GET .*/offer", 1),
    "the join": ("PUT .*/join", 1),
    "the reveal": ("GET .*/reveal", 1),
    "waiting for the digits": ("GET .*/welcome", 1),
    "reading the log": ("GET .*/devlog/0{16}$", 1),
    "the last word": ("PUT .*/done", 1),
}
_SET_UP_BY_THEN = {"the last word"}
_ADDED_BY_THEN = {"reading the log", "the last word"}


class Trap:
    """Kills a process at one of its requests. `before`: the request never reaches the relay."""

    def __init__(self, pattern: str, *, before: bool, times: int = 1) -> None:
        self.side: Side | None = None
        self._pattern = re.compile(pattern)
        self._before = before
        self._left = times
        self._lock = threading.Lock()
        self._sprung = threading.Event()

    def sprung(self) -> bool:
        return self._sprung.is_set()

    def was_sprung(self) -> bool:
        """Whether it is, in the end: the process is gone a moment before the trap knows."""
        return self._sprung.wait(10)

    def __call__(self, method: str, path: str) -> Fault | None:
        with self._lock:
            if self.side is None or not self._pattern.search(f"{method} {path.partition('?')[0]}"):
                return None
            self._left -= 1
            if self._left != 0:
                return None
        fault = Fault.BROKEN if self._before else None
        self.side.kill()
        self._sprung.set()
        return fault


@contextlib.contextmanager
def _trap(vault: Vault, pattern: str, *, before: bool, times: int = 1) -> Generator[tuple[Trap, FaultProxy]]:
    trap = Trap(pattern, before=before, times=times)
    with fault_proxy(vault.relay.url) as proxy:
        proxy.always = trap
        yield trap, proxy


def _starts_over(vault: Vault, machine: Machine) -> bool:
    """Pairs again without any trap, and checks what there is. Returns whether the newcomer was a member before."""
    inviter, newcomer = pair(vault.core, machine)
    vault.nodes.append(machine)
    vault.settle()
    listed = members(vault.core)
    assert len(listed) == 2
    assert listed[1]["id"] == newcomer.events[-1]["device"]
    assert members(machine)[1]["this"]
    assert len(vault.digests()) == 1
    return bool(inviter.events[-1]["again"])


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("step", [*_INVITER])
def test_an_inviter_killed_at_any_step_leaves_nothing_half_added(
    vault: Vault, machine: Machine, tmp_path: Path, step: str, *, before: bool
) -> None:
    hurry = hurried(tmp_path / "hurry", {"newcomer.HEARD_SECONDS_MAX": 1.0})  # the dead hear nothing
    with (
        _trap(vault, _INVITER[step], before=before) as (trap, proxy),
        inviting(vault.core, CRYSTAL_RELAY_URL=proxy.url) as inviter,
    ):
        trap.side = inviter
        shown = inviter.event_unless("invite", trap.sprung)
        if shown is not None:
            relay = ("--relay", vault.relay.url)
            with joining(machine, str(shown["code"]), *relay, PYTHONPATH=hurry) as newcomer:
                digits = newcomer.event_unless("digits", trap.sprung)
                if digits is not None:
                    with contextlib.suppress(ValueError, BrokenPipeError):  # killed a moment ago
                        inviter.type(str(digits["digits"]))
                    newcomer.event_unless("joined", trap.sprung)
                newcomer.stop()
                newcomer.end()
        inviter.end()
        assert trap.was_sprung()
    assert vault.core.call("status", "--json").json["role"] == "core"
    again = _starts_over(vault, machine)
    if step in ("opening the mailbox", "the offer", "the reveal"):
        assert not again
    if step in ("the token", "the welcome", "closing the mailbox"):
        assert again


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("step", [*_NEWCOMER])
def test_a_newcomer_killed_at_any_step_starts_over_as_the_same_device(
    vault: Vault, machine: Machine, step: str, *, before: bool
) -> None:
    pattern, times = _NEWCOMER[step]
    with (
        _trap(vault, pattern, before=before, times=times) as (trap, proxy),
        inviting(vault.core) as inviter,
        joining(machine, inviter.code(), "--relay", proxy.url) as newcomer,
    ):
        trap.side = newcomer
        digits = newcomer.event_unless("digits", trap.sprung)
        if digits is not None and inviter.event_unless("digits-wanted", trap.sprung) is not None:
            inviter.type(str(digits["digits"]))
            inviter.event_unless("added", lambda: trap.sprung() and step not in _ADDED_BY_THEN)
        newcomer.event_unless("joined", trap.sprung)
        assert trap.was_sprung()
        inviter.stop()
        inviter.end()
    set_up = machine.call("status", "--json", check=False).code == 0
    assert set_up is (step in _SET_UP_BY_THEN)
    again = _starts_over(vault, machine)
    assert again is (step in _ADDED_BY_THEN) or step == "waiting for the digits"


def test_a_stop_that_comes_too_late_finishes_the_step_and_says_so(vault: Vault, machine: Machine) -> None:
    with (
        fault_proxy(vault.relay.url) as proxy,
        inviting(vault.core, CRYSTAL_RELAY_URL=proxy.url) as inviter,
        joining(machine, inviter.code(), "--relay", vault.relay.url) as newcomer,
    ):

        def stop_in_the_middle(method: str, path: str) -> None:
            if method == "PUT" and "/devlog/" in path:
                inviter.stop()

        proxy.always = stop_in_the_middle
        inviter.type(str(newcomer.event("digits")["digits"]))
        assert (inviter.end(), newcomer.end()) == (130, 0)
    assert inviter.events[-1] == {"event": "stopped", "added": True}
    assert len(members(vault.core)) == 2
    machine.call("sync")


def test_an_inviter_that_died_half_way_names_the_machine_once_at_its_next_start(
    vault: Vault, machine: Machine
) -> None:
    machine.extra["CRYSTAL_DEVICE_NAME"] = "laptop"
    with (
        _trap(vault, _INVITER["the welcome"], before=True) as (trap, proxy),
        inviting(vault.core, CRYSTAL_RELAY_URL=proxy.url) as inviter,
        joining(machine, inviter.code(), "--relay", vault.relay.url) as newcomer,
    ):
        trap.side = inviter
        inviter.type(str(newcomer.event("digits")["digits"]))
        newcomer.event_unless("joined", trap.sprung)
        assert trap.was_sprung()
    with inviting(vault.core) as inviter:
        told = inviter.event("interrupted-before")
        assert (told["name"], told["device"]) == ("laptop", members(vault.core)[1]["id"])
    with inviting(vault.core) as inviter:
        inviter.code()
        assert "interrupted-before" not in inviter.names
