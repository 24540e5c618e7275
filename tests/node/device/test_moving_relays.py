"""A device that moves its vault to another relay shows it another token: the relay before has seen the one before."""

from pathlib import Path

import pytest

from crystal_crypto.kit import encode_kit
from crystal_node.device.device import opened
from tests.support.invited import settings_of
from tests.support.machine import Machine, Vault
from tests.support.relay_process import running_relay


def token_of(machine: Machine) -> str | None:
    with opened(settings_of(machine)) as device:
        return device.keys.token(device.member.device_id)


def kit_of(machine: Machine) -> str:
    with opened(settings_of(machine)) as device:
        assert device.root is not None
        return "\n".join(encode_kit(device.root, device.member.vault))


@pytest.mark.slow
def test_each_way_to_another_relay_takes_another_token_there(vault: Vault, tmp_path: Path) -> None:
    node = vault.add()
    vault.settle()
    before = {token_of(vault.core), token_of(node)}
    with running_relay(tmp_path / "second") as second, running_relay(tmp_path / "third") as third:
        vault.core.call(
            "init",
            "--role",
            "core",
            "--relay",
            second.url,
            "--yes",
            CRYSTAL_RELAY_ENROLL_TOKEN=second.enroll_token,
        )
        vault.core.call("sync")
        node.call("pair", "--code", "-", "--relay", second.url, typed=vault.code() + "\n")
        moved = {token_of(vault.core), token_of(node)}
        assert len(before | moved) == 4
        kit = tmp_path / "kit.txt"
        kit.write_text(kit_of(vault.core), encoding="utf-8")
        vault.core.call(
            "recovery",
            "restore",
            "--relay",
            third.url,
            "--kit",
            str(kit),
            "--yes",
            CRYSTAL_RELAY_ENROLL_TOKEN=third.enroll_token,
        )
        assert token_of(vault.core) not in before | moved
        vault.core.call("sync")


def test_a_relay_that_refuses_does_not_cost_the_token_of_the_one_before(vault: Vault, tmp_path: Path) -> None:
    before = token_of(vault.core)
    with running_relay(tmp_path / "second") as second:
        refused = vault.core.call(
            "init",
            "--role",
            "core",
            "--relay",
            second.url,
            "--yes",
            check=False,
            CRYSTAL_RELAY_ENROLL_TOKEN="0" * 64,
        )
    assert refused.code != 0
    assert token_of(vault.core) == before
    vault.core.call("sync")


def test_the_same_relay_keeps_its_token(vault: Vault) -> None:
    before = token_of(vault.core)
    vault.core.call(
        "init",
        "--role",
        "core",
        "--relay",
        vault.relay.url,
        "--yes",
        CRYSTAL_RELAY_ENROLL_TOKEN=vault.relay.enroll_token,
    )
    assert token_of(vault.core) == before
