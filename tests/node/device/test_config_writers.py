"""`config.json` has many writers, some of which wait for a person: none takes back what another has written meanwhile."""

import base64
import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import keyring.core
import pytest
from keyring.backends import fail
from msgspec.structs import replace

from crystal_crypto.hierarchy import Root
from crystal_node.base.settings import Config, Settings, resolve
from crystal_node.device.device import Device
from crystal_node.sync.administration import root_rotation
from crystal_node.sync.syncer import Syncer
from tests.node.device.test_keys import keys, with_keyring
from tests.node.sync.administration.test_revocation import root_of
from tests.support.machine import Machine, Vault
from tests.support.recovery import device_of, kit_of


@contextmanager
def waiting(machine: Machine, asks: str, *arguments: str) -> Generator["subprocess.Popen[str]"]:
    """A command that has read its settings and has come to the function ``asks``, which waits for what is typed."""
    module, _, name = asks.partition(":")
    code = (
        f"import sys, {module} as module; from crystal_node.surfaces import cli; real = module.{name}\n"
        "def told(*given, **named):\n"
        "    print('asking', file=sys.stderr, flush=True); return real(*given, **named)\n"
        f"module.{name} = told; sys.exit(cli.main(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=machine.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stderr is not None
    try:
        while "asking" not in process.stderr.readline():
            assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_kit_typed_back_while_the_keys_move_does_not_lose_them(vault: Vault, tmp_path: Path) -> None:
    core = vault.core
    with_keyring(core, tmp_path)
    kit, device = kit_of(core), device_of(core)
    with waiting(core, "crystal_node.surfaces.cli.recovery:read_kit", "recovery", "verify") as typing:
        core.call("keys", "move", "--to", "keyring")
        typing.communicate(kit)
        assert typing.returncode == 0
    assert keys(core)["place"] == "keyring"
    assert device_of(core) == device
    assert _settings(core).config.kit_verified


def test_what_keyring_an_earlier_call_found_binds_no_later_one(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring.core, "_keyring_backend", cast("Any", fail.Keyring)())
    with_keyring(vault.core, tmp_path)
    vault.core.call("keys", "move", "--to", "keyring")
    assert keys(vault.core)["place"] == "keyring"


def test_a_code_typed_while_the_keys_move_makes_no_second_identity(vault: Vault, tmp_path: Path) -> None:
    node = vault.add()
    with_keyring(node, tmp_path)
    code, device = vault.code(), device_of(node)
    with waiting(node, "crystal_node.surfaces.cli.pair:ask_code", "pair", "--code", "-") as typing:
        node.call("keys", "move", "--to", "keyring")
        typing.communicate(code + "\n")
        assert typing.returncode == 0
    assert keys(node)["place"] == "keyring"
    assert device_of(node) == device
    node.call("sync")


def test_a_new_root_is_not_put_where_the_keys_were(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = vault.core
    with_keyring(core, tmp_path)
    before, real = root_of(core), root_rotation.put_new_root

    async def after_a_move(device: Device, syncer: Syncer, old: Root) -> Root:
        core.run("keys", "move", "--to", "keyring")
        return await real(device, syncer, old)

    with monkeypatch.context() as patch:
        patch.setattr(root_rotation, "put_new_root", after_a_move)
        refused = core.call("recovery", "replace", "--yes", check=False)
    assert (refused.code, "moved" in refused.err) == (9, True), refused.err
    assert list((core.home / "state" / "secrets").iterdir()) == []
    assert keyring_root(core) == before.to_bytes()
    core.run("recovery", "replace", "--yes")
    assert keyring_root(core) != before.to_bytes()
    assert core.run("recovery", "show", "--yes", "--json").code == 0


def keyring_root(machine: Machine) -> bytes:
    """What the keyring of the tests has as the vault's root."""
    kept: dict[str, str] = json.loads(Path(machine.extra["KEPT_KEYRING"]).read_text())
    (text,) = (value for name, value in kept.items() if name.endswith(" root"))
    return base64.b64decode(text.rpartition(":")[2])


def test_only_what_a_writer_changes_is_written(machine: Machine) -> None:
    first, second = _settings(machine), _settings(machine)
    first.home.create()
    first.save(_with(first, key_store="keyring"))
    merged = second.save(_with(second, name="tablet"))
    assert (merged.config.key_store, merged.config.name) == ("keyring", "tablet")
    assert _settings(machine).config == merged.config


def _settings(machine: Machine) -> Settings:
    return resolve(environment=machine.environment | {"CRYSTAL_HOME": str(machine.home)})


def _with(settings: Settings, **changes: str) -> Config:
    return replace(settings.config, **changes)
