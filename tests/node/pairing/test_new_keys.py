"""A home that is set up and comes as another device: until it is in, it is the one that it was; then nothing is left behind."""

import json

import pytest

from crystal_node import enrol
from tests.node.test_devices import device_id
from tests.support.invited import invite
from tests.support.machine import Machine, Vault


def withdrawn_code(vault: Vault) -> str:
    """The code of an invite that was stopped."""
    with vault.core.start("pair", "--json") as process:
        assert process.stdout is not None
        code = str(json.loads(process.stdout.readline())["code"])
        process.terminate()
        process.communicate()
    return code


def kept_secrets(machine: Machine) -> set[str]:
    return {path.name for path in (machine.home / "state" / "secrets").iterdir()}


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_invite_that_comes_to_nothing_leaves_a_revoked_home_as_it_was(vault: Vault) -> None:
    phone = invite(vault, "phone")
    phone.call("remember", "Written while it was out.")
    vault.core.call("devices", "revoke", "phone", "--yes")
    before = device_id(phone)
    for code in (withdrawn_code(vault), "mc1:" + "A" * 43):
        joining = ("pair", "--new-keys", "--code", "-", "--yes", "--relay", vault.relay.url)
        assert phone.call(*joining, typed=code + "\n", check=False).code != 0
        assert device_id(phone) == before
        assert phone.call("status", "--json").json["outbox"]["pending"] == 1
    back = phone.call("pair", "--new-keys", "--code", "-", typed=vault.code() + "\n")
    assert "as another device than before" in back.out
    assert device_id(phone) != before
    assert "identity.next" not in kept_secrets(phone)
    vault.settle()
    assert vault.core.found("Written while it was out") == ["Written while it was out."]


def test_killed_before_it_is_named_the_new_device_comes_again_and_is_one(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = invite(vault, "phone")
    vault.core.call("devices", "revoke", "phone", "--yes")
    joining = ("pair", "--new-keys", "--code", "-")
    with monkeypatch.context() as patch:
        patch.setattr(enrol.Joining, "finish", killed)
        assert phone.call(*joining, typed=vault.code() + "\n", check=False).code != 0
    phone.call(*joining, typed=vault.code() + "\n")
    vault.settle()
    assert len(vault.core.call("devices", "--all", "--json").json["devices"]) == 3, (
        "the Core, and the phone twice"
    )


def test_killed_before_it_takes_over_what_was_waiting_the_next_sync_sends_it(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = invite(vault, "phone")
    phone.call("remember", "Waited through a lost key store.")
    (phone.home / "state" / "secrets" / "identity").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(enrol, "_adopt_outbox", killed)
        assert phone.call("pair", "--code", "-", typed=vault.code() + "\n", check=False).code != 0
    vault.settle()
    assert vault.core.found("lost key store") == ["Waited through a lost key store."]
    assert phone.call("status", "--json").json["outbox"]["pending"] == 0
