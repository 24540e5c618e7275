"""A vault's id that somebody else registered at a relay before its owner came (docs/decisions/0062-occupied-vault-ids.md)."""

import asyncio
import secrets
from contextlib import aclosing
from pathlib import Path

from crystal_node.device.device import opened
from crystal_relay.client.http import HttpStore
from crystal_relay.tokens import new_token, recovery_hash, token_hash
from tests.support.invited import settings_of
from tests.support.machine import Vault
from tests.support.relay_process import RelayProcess, running_relay


async def _occupy(relay: RelayProcess, vault: bytes) -> tuple[str, bytes]:
    """Registers the vault with secrets of one's own. Returns the token and the device's id."""
    device, recovery = secrets.token_bytes(16), secrets.token_bytes(32)
    token = new_token(device)
    async with aclosing(HttpStore(relay.url, vault=vault, token=token)) as store:
        await store.create_vault(
            enroll_token=relay.enroll_token,
            recovery_hash=recovery_hash(recovery),
            device=device,
            token_hash=token_hash(token),
        )
    return token, device


async def _listed(relay: RelayProcess, vault: bytes, token: str) -> list[str]:
    async with aclosing(HttpStore(relay.url, vault=vault, token=token)) as store:
        return [entry.key for entry in (await store.list(f"v/{vault.hex()}/")).entries]


def test_who_occupies_a_vaults_id_at_another_relay_keeps_it_out_there_and_gets_nothing_of_it(
    vault: Vault, tmp_path: Path
) -> None:
    vault.core.call("remember", "Nothing of this is sent to a vault of somebody else.")
    vault.settle()
    with opened(settings_of(vault.core)) as device:
        name = device.member.vault
    with running_relay(tmp_path / "second") as second:
        token, _ = asyncio.run(_occupy(second, name))
        refused = vault.core.call(
            *("init", "--role", "core", "--relay", second.url, "--yes", "--json"),
            check=False,
            CRYSTAL_RELAY_ENROLL_TOKEN=second.enroll_token,
        )
        assert refused.code != 0
        assert "another root" in refused.error["error"]
        assert "crystal-relay vaults drop" in refused.error["hint"]
        assert asyncio.run(_listed(second, name, token)) == []
    assert vault.core.call("sync").code == 0, "the relay before still serves it"
