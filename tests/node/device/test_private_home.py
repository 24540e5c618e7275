"""At every start: nobody else can use what is in the home, or the command stops and names the remedy."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.machine import Vault

_PATHS = (
    ".",
    "state",
    "state/secrets",
    "config.json",
    "state/state.db",
    "memory/crystal.db",
    "state/secrets/identity",
    "state/secrets/root",
    "state/secrets/relay-token",
)


@pytest.mark.parametrize("path", _PATHS)
def test_what_others_can_use_stops_every_command_that_needs_the_keys_until_the_named_remedy_is_run(
    path: str, vault: Vault
) -> None:
    core = vault.core
    core.call("status")
    exposed = core.home / path
    exposed.chmod(exposed.stat().st_mode | 0o040)
    for command in (("status",), ("capture",), ("sync",), ("devices",), ("remember", "a text")):
        refused = core.call(*command, "--json", check=False)
        assert refused.code == 8, command
        assert str(exposed) in refused.error["error"]
    assert exposed.stat().st_mode & 0o040, "it is told, not silently mended: somebody may have read it"
    remedy = core.call("status", "--json", check=False).error["hint"]
    subprocess.run(shlex.split(remedy), check=True)
    core.call("status")


def test_a_home_that_another_user_owns_is_refused(vault: Vault) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(vault.core.home / "config.json", 12345, -1)
    refused = vault.core.call("status", "--json", check=False)
    assert refused.code == 8
    assert "another user" in refused.error["error"]
    assert f"chown {os.geteuid()}" in refused.error["hint"]


def test_the_files_that_commands_make_are_private_whatever_the_umask(vault: Vault) -> None:
    before = os.umask(0)
    try:
        node = vault.add()
        node.run("remember", "the umask was zero")
        node.call("sync")
    finally:
        os.umask(before)
    node.call("status")
    exposed = [path for path in (node.home, *node.home.rglob("*")) if path.stat().st_mode & 0o077]
    assert [path for path in exposed if not _closed_above(path, node.home)] == []
    assert node.home.stat().st_mode & 0o077 == 0


def _closed_above(path: Path, home: Path) -> bool:
    """Whether a folder on the way to it is closed to others, the home itself apart."""
    return any(parent.stat().st_mode & 0o077 == 0 for parent in path.parents if parent.is_relative_to(home))
