"""A vault's id at a relay where the vault is not yet: only who has the root founds it.

docs/decisions/0062-occupied-vault-ids.md says why.
"""

import asyncio
import secrets
from contextlib import aclosing
from pathlib import Path

import pytest

from crystal_node.device.device import opened
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import Forbidden
from crystal_relay.tokens import new_token, recovery_hash, token_hash
from crystal_relay.wire import RootProof
from tests.support.invited import settings_of
from tests.support.machine import Vault
from tests.support.relay_process import RelayProcess, running_relay


async def _occupy(relay: RelayProcess, vault: bytes, admin: bytes) -> None:
    """Registers the vault with secrets of one's own, and the admin key that stands in the clear in its device log."""
    device, recovery = secrets.token_bytes(16), secrets.token_bytes(32)
    token = new_token(device)
    async with aclosing(HttpStore(relay.url, vault=vault, token=token)) as store:
        await store.create_vault(
            enroll_token=relay.enroll_token,
            recovery_hash=recovery_hash(recovery),
            device=device,
            token_hash=token_hash(token),
            proof=RootProof(admin.hex(), [], secrets.token_hex(64)),
        )


def test_a_stranger_takes_no_vaults_id_at_another_relay_and_the_owner_with_a_replaced_root_founds_it(
    vault: Vault, tmp_path: Path
) -> None:
    vault.core.call("remember", "What is sent to the second relay.")
    vault.settle()
    vault.core.call("recovery", "replace", "--yes")
    vault.core.call("sync")
    with opened(settings_of(vault.core)) as device:
        name, roots = device.member.vault, device.member.log.roots
    assert len(roots) == 2
    with running_relay(tmp_path / "second") as second:
        with pytest.raises(Forbidden):
            asyncio.run(_occupy(second, name, roots[0][0].admin))
        with pytest.raises(Forbidden):
            asyncio.run(_occupy(second, name, roots[1][0].admin))
        vault.core.call(
            *("init", "--role", "core", "--relay", second.url, "--yes", "--json"),
            CRYSTAL_RELAY_ENROLL_TOKEN=second.enroll_token,
        )
        vault.core.call("sync")
        with opened(settings_of(vault.core)) as device:
            assert device.settings.relay_url == second.url
