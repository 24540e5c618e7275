"""A device that joins without the vault's root, as one that was invited does: the Core adds it and lets its token in.

The invite's own messages have tests of their own; here only what they come to is done, without two processes and a person.
"""

import asyncio
import os
from unittest import mock

from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.membership.administration import NewDevice, add_device
from crystal_mirror.membership.member import load_log
from crystal_mirror.store_keys import StoreKeys
from crystal_node.base.clock import now_ms
from crystal_node.base.settings import Flags, Settings, resolve
from crystal_node.device.device import opened
from crystal_node.device.enrolment import joining
from crystal_node.device.relay import open_store
from crystal_node.device.runner import Runner
from crystal_relay.tokens import Preset, new_token, token_hash
from tests.support.machine import Machine, Vault


def invite(vault: Vault, name: str, *, by: Machine | None = None, grant: bool = False) -> Machine:
    """A new machine of that name in the vault, added by the Core or another machine that may."""
    machine = Machine(vault.folder / f"invited-{name}")
    machine.root.mkdir()
    asyncio.run(_join(vault, by or vault.core, machine, name, grant=grant))
    vault.nodes.append(machine)
    return machine


def settings_of(machine: Machine, flags: Flags | None = None) -> Settings:
    with mock.patch.dict(os.environ, machine.environment, clear=True):
        return resolve(flags)


async def _join(vault: Vault, inviter: Machine, machine: Machine, name: str, *, grant: bool) -> None:
    inviting = settings_of(inviter)
    settings = settings_of(machine, Flags(relay_url=vault.relay.url, name=name))
    assert inviting.vault is not None
    with joining(settings, inviting.vault) as home:
        token = new_token(home.identity.id)
        await _admit(inviting, home.identity, name, token, grant=grant)
        home.keys.keep_token(token)
        journal = home.journal()
        try:
            async with open_store(home.settings, vault=inviting.vault, token=token) as store:
                log = load_log(journal, inviting.vault)
                await Runner(store, None).run(read_log(log, journal, StoreKeys(inviting.vault)))
        finally:
            journal.close()
        home.finish()


async def _admit(inviting: Settings, identity: DeviceIdentity, name: str, token: str, *, grant: bool) -> None:
    newcomer = NewDevice(identity.id, identity.signing.public, identity.exchange.public)
    with opened(inviting) as device:
        async with device.online() as store:
            await Runner(store, None).run(
                add_device(device.member, newcomer, name=name, system="Test", now_ms=now_ms(), grant=grant)
            )
        async with device.at_relay() as relay:
            preset = Preset.LEAD if grant else Preset.DEVICE
            await relay.register_token(device=identity.id, token_hash=token_hash(token), preset=preset)
