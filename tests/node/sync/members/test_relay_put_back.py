"""A relay that was put back from a backup has forgotten who was put out, and which root is in force: it is told again."""

import shutil
from pathlib import Path

from tests.node.sync.administration.test_devices import device_id
from tests.node.sync.members.test_duties import reads
from tests.support.machine import Vault
from tests.support.recovery import fresh_machine, kit_of
from tests.support.relay_process import RelayProcess, running_relay


def test_after_a_relay_was_put_back_an_ex_device_is_out_and_the_newest_kit_opens(tmp_path: Path) -> None:
    with running_relay(tmp_path / "relay" / "store") as relay:
        vault = Vault(relay, tmp_path)
        laptop = vault.add()  # with the root
        laptop.call("remember", "herons fish at dusk")
        vault.settle()
        backup = _saved(relay, tmp_path)
        old_kit = kit_of(vault.core)
        vault.core.call("devices", "revoke", device_id(laptop)[:8], "--yes")
        assert not reads(laptop)
        _put_back(relay, backup)
        assert reads(laptop), "the backup knows nothing of it"
        vault.core.call("sync")
        assert not reads(laptop)
        _restored(vault, tmp_path / "by-new-kit", kit_of(vault.core), code=0)
        _restored(vault, tmp_path / "by-old-kit", old_kit, code=7)


def test_a_relay_that_takes_no_secret_that_is_left_still_shuts_the_ex_device_out(tmp_path: Path) -> None:
    with running_relay(tmp_path / "relay" / "store") as relay:
        vault = Vault(relay, tmp_path)
        laptop = vault.add()
        vault.settle()
        backup = _saved(relay, tmp_path)
        vault.core.call("devices", "revoke", device_id(laptop)[:8], "--yes")
        (vault.core.home / "state" / "secrets" / "recovery.before").unlink()
        _put_back(relay, backup)
        told = vault.core.call("sync", "--json").json
        assert "relay" in told["problem"], "it goes on saying that the newest kit does not open there"
        assert not reads(laptop)


def _saved(relay: RelayProcess, folder: Path) -> Path:
    relay.stop()
    shutil.copytree(relay.directory, folder / "backup")
    relay.start()
    return folder / "backup"


def _put_back(relay: RelayProcess, backup: Path) -> None:
    relay.stop()
    shutil.rmtree(relay.directory)
    shutil.copytree(backup, relay.directory)
    relay.start()


def _restored(vault: Vault, folder: Path, kit: str, *, code: int) -> None:
    folder.mkdir()
    outcome = fresh_machine(folder).call(
        "recovery", "restore", "--relay", vault.relay.url, "--kit", "-", typed=kit, check=False
    )
    assert outcome.code == code, outcome.err
