"""A revocation that replaces the root, by a process that dies at each of its steps: the vault stays usable, status says that it
is not finished, and the next run, or the next sync where the log has it, finishes it."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from crystal_crypto.hierarchy import Root
from crystal_crypto.keystore import FileKeyStore
from crystal_crypto.pairing import encode
from crystal_node.device.device import Device, opened
from crystal_node.device.journal import SqliteJournal
from crystal_node.sync.administration.revocation import revoke_device
from crystal_node.sync.members.duties_due import duties_due, settling_due
from crystal_relay.client.http import HttpStore
from tests.node.sync.administration.test_devices import device_id
from tests.node.sync.administration.test_revocation import concerns, lets_in, root_of
from tests.support.invited import invite, settings_of
from tests.support.machine import Machine, Vault

_STEPS_MAX = 60


class Died(BaseException):
    """The process ends here: nothing catches it, nothing behind it is done."""


class Steps:
    """Counts what a process does to its disk and to the relay, and dies before the one that it is told."""

    def __init__(self) -> None:
        self.dies_at = _STEPS_MAX
        self.count = 0

    def step(self) -> None:
        self.count += 1
        if self.count >= self.dies_at:
            raise Died

    def before(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any, **named: Any) -> Any:
            self.step()
            return method(*arguments, **named)

        return stepping


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Every write to the key store and the journal, and every call that changes the relay, is a step."""
    found = Steps()
    for owner, names in (
        (FileKeyStore, ("store", "delete")),
        (SqliteJournal, ("transaction",)),
        (HttpStore, ("put_new", "retain_tokens", "replace_recovery", "raise_token")),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, found.before(getattr(owner, name)))
    return found


@contextmanager
def on(machine: Machine) -> Generator[Device]:
    with opened(settings_of(machine)) as device:
        yield device


def revoke(machine: Machine, target: str, kit: Root | None = None) -> None:
    with on(machine) as device:
        asyncio.run(revoke_device(device, bytes.fromhex(target), kit=kit, progress=lambda _: None))


def finished(machine: Machine, target: str, before: Root) -> None:
    """Everything that a revocation comes to, here and at the relay."""
    with on(machine) as device:
        log = device.member.log
        assert not log.is_active(bytes.fromhex(target))
        assert device.holds_root
        assert device.spare_root is None
        assert device.keys.root() == device.root
        assert device.keys.store.load("root.next") is None
        assert not duties_due(device)
        assert not settling_due(device)
        after = device.root
    assert after is not None
    assert after != before
    assert not lets_in(machine, before.relay_secret)
    assert lets_in(machine, after.relay_secret)
    assert not {"revocation-unfinished", "relay-not-told", "root-replaced"} & concerns(machine)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_revocation_that_dies_anywhere_is_finished_by_running_it_again(vault: Vault, steps: Steps) -> None:
    core = vault.core
    seen: set[frozenset[str]] = set()
    for dies_at in range(1, _STEPS_MAX):
        thief = vault.add()
        target = device_id(thief)
        before = root_of(core)
        steps.count, steps.dies_at = 0, dies_at
        try:
            revoke(core, target)
        except Died:
            died = True
        else:
            died = False
        steps.dies_at = 10**9
        if not died:
            assert dies_at > 10, "there are more steps than that"
            break
        with on(core) as device:
            assert device.holds_root, f"the root in force is not here after step {dies_at}"
            info = device.member.log.member(bytes.fromhex(target))
            out = info is not None and info.revoked is not None
        seen.add(frozenset(concerns(core) & {"revocation-unfinished", "relay-not-told"}))
        core.call("remember", f"After the death at step {dies_at}.")
        if out and dies_at % 2:
            core.call("sync")
        else:
            revoke(core, target)
        finished(core, target, before)
        assert thief.call("sync", check=False).code == 5
    assert frozenset({"revocation-unfinished", "relay-not-told"}) in seen, (
        "the root is replaced, the device is not out"
    )
    assert frozenset({"relay-not-told"}) in seen, "the log has it, the relay not"
    assert core.call("verify", "--json").json["ok"] is True


def test_a_revocation_by_the_kit_that_dies_is_finished_by_a_device_that_had_no_power_before(
    vault: Vault, steps: Steps
) -> None:
    """The kit's root is all that lets the phone in at the relay until the new one is there: it is not lost in between."""
    root, tried = root_of(vault.core), 0
    for dies_at in range(6, _STEPS_MAX, 3):
        phone = invite(vault, f"phone-{dies_at}")
        thief = Machine(vault.folder / f"thief-{dies_at}")
        thief.root.mkdir()
        with on(phone) as device:
            code = encode(root, device.member.vault)
        thief.call("pair", "--code", "-", "--relay", vault.relay.url, typed=code + "\n")
        target = device_id(thief)
        steps.count, steps.dies_at = 0, dies_at
        try:
            revoke(phone, target, root)
        except Died:
            tried += 1
        else:
            break
        finally:
            steps.dies_at = 10**9
        with on(phone) as device:
            kit = None if device.holds_root else root
        revoke(phone, target, kit)
        finished(phone, target, root)
        root = root_of(phone)
    assert tried > 3
