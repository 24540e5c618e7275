"""A home that is set up and comes as another device: until it is in, it is the one that it was; then nothing is left behind."""

from typing import Any

import pytest

from crystal_crypto.hierarchy import Root
from crystal_crypto.keystore import FileKeyStore
from crystal_crypto.pairing import encode
from crystal_node.base.settings import Settings
from crystal_node.device import enrolment
from tests.node.sync.administration.test_devices import device_id
from tests.support.invited import invite
from tests.support.machine import Machine, Vault
from tests.support.pairing import inviting, pair

STEPS_MAX = 40


def withdrawn_code(vault: Vault) -> str:
    """The code of an invite that was stopped."""
    with inviting(vault.core) as inviter:
        code = inviter.code()
        inviter.stop()
        assert inviter.end() != 0
    return code


def kept_secrets(machine: Machine) -> set[str]:
    return {path.name for path in (machine.home / "state" / "secrets").iterdir()}


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def die_at(patch: pytest.MonkeyPatch, at: int, *, after: bool) -> None:
    """At that change of what is kept, before it or right after it."""
    count = 0

    def around(owner: Any, name: str) -> None:
        call = getattr(owner, name)

        def step(*arguments: Any) -> Any:
            nonlocal count
            here = count == at
            count += 1
            if here and not after:
                raise KeyboardInterrupt
            result = call(*arguments)
            if here:
                raise KeyboardInterrupt
            return result

        patch.setattr(owner, name, step)

    for owner, name in (
        (FileKeyStore, "store"),
        (FileKeyStore, "delete"),
        (Settings, "save"),
        (enrolment, "_adopt_outbox"),
    ):
        around(owner, name)


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


def test_a_healthy_device_stays_the_one_that_it_is_when_nothing_comes_of_its_new_keys(vault: Vault) -> None:
    phone = invite(vault, "phone")
    before = device_id(phone)
    # The one is an invite that is over, the other the code of a vault that founded itself elsewhere.
    for code in (withdrawn_code(vault), encode(Root.generate())):
        joining = ("pair", "--new-keys", "--code", "-", "--yes", "--relay", vault.relay.url)
        assert phone.call(*joining, typed=code + "\n", check=False).code != 0
    wrong = encode(Root.generate(), bytes.fromhex(str(phone.call("status", "--json").json["vault"])))
    assert phone.call("pair", "--new-keys", "--code", "-", typed=wrong + "\n", check=False).code == 7
    phone.call("remember", "Said by the same device as ever.")
    phone.call("sync")
    assert device_id(phone) == before
    vault.settle()
    assert vault.core.found("same device as ever") == ["Said by the same device as ever."]


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_change_a_healthy_home_works_as_the_old_device_or_as_the_new_one(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    phone = invite(vault, "phone")
    code = vault.code()
    ids = [device_id(phone)]
    for at in range(STEPS_MAX):
        phone.call("remember", f"Said before death {at}.")
        with monkeypatch.context() as patch:
            die_at(patch, at, after=after)
            died = phone.call("pair", "--new-keys", "--code", "-", typed=code + "\n", check=False).code != 0
        phone.call("sync")
        if device_id(phone) != ids[-1]:
            ids.append(device_id(phone))
        if not died:
            break
    else:
        raise AssertionError("it changes more than that?")
    assert at > 5, "keys, tokens and settings are changed"
    assert "relay-token.next" not in kept_secrets(phone)
    assert "identity.next" not in kept_secrets(phone)
    vault.settle()
    for number in range(at + 1):
        assert vault.core.found(f"Said before death {number}.")[0] == f"Said before death {number}."
    listed = [row["id"] for row in vault.core.call("devices", "--json").json["devices"]]
    assert listed == [device_id(vault.core), *ids], "a device that was begun is the one that comes"


def test_killed_before_it_is_named_the_new_device_comes_again_and_is_one(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = invite(vault, "phone")
    vault.core.call("devices", "revoke", "phone", "--yes")
    joining = ("pair", "--new-keys", "--code", "-")
    with monkeypatch.context() as patch:
        patch.setattr(enrolment.PendingEnrolment, "finish", killed)
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
        patch.setattr(enrolment, "_adopt_outbox", killed)
        assert phone.call("pair", "--code", "-", typed=vault.code() + "\n", check=False).code != 0
    vault.settle()
    assert vault.core.found("lost key store") == ["Waited through a lost key store."]
    assert phone.call("status", "--json").json["outbox"]["pending"] == 0


def test_a_home_whose_keys_are_lost_says_that_it_is_a_new_device_and_names_the_old_one(vault: Vault) -> None:
    phone = invite(vault, "phone")
    before = device_id(phone)
    for path in (phone.home / "state" / "secrets").iterdir():
        path.unlink()
    back = phone.call("pair", "--code", "-", typed=vault.code() + "\n")
    assert "knows it again" not in back.out
    assert "as another device than before" in back.out
    assert f"crystal devices revoke {before[:8]}" in back.err
    vault.core.call("sync")
    vault.core.call("devices", "revoke", before[:8], "--yes")
    again = phone.call("pair", "--code", "-", typed=vault.code() + "\n")
    assert "knows it again" in again.out


def test_a_home_whose_keys_are_lost_says_so_to_a_program_by_an_invite(vault: Vault) -> None:
    phone = invite(vault, "phone")
    before = device_id(phone)
    (phone.home / "state" / "secrets" / "identity").unlink()
    _, newcomer = pair(vault.core, phone)
    joined = newcomer.events[-1]
    assert (joined["fresh"], joined["anew"], joined["replaced"]) == (False, True, before)
    assert joined["device"] == device_id(phone)
    _, newcomer = pair(vault.core, phone)
    assert (newcomer.events[-1]["anew"], newcomer.events[-1]["replaced"]) == (False, None)


@pytest.mark.parametrize("spoilt", [b"", b"nothing of ours", b"CRYD\x02" + bytes(88)])
def test_a_damaged_identity_is_named_with_what_to_do_and_that_works(vault: Vault, spoilt: bytes) -> None:
    phone = invite(vault, "phone")
    path = phone.home / "state" / "secrets" / "identity"
    path.write_bytes(spoilt)
    refused = phone.call("status", "--json", check=False)
    assert refused.code == 8
    assert "identity" in refused.error["error"]
    assert "backup" in refused.error["hint"]
    path.unlink()
    pair(vault.core, phone)
