"""The agent's job that makes backups."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from crystal_crypto.hierarchy import VaultSecret
from crystal_node.base.events import WatchEvent
from crystal_node.device.activity import Activity, read_moments
from crystal_node.device.device import Device, opened
from crystal_node.safekeeping.backup.job import jobs
from crystal_node.safekeeping.backup.verification import verify_backup
from crystal_node.sync.job_context import JobContext
from crystal_node.sync.syncer import Syncer
from tests.support.invited import settings_of
from tests.support.machine import Machine, Vault


async def _work(device: Device, hear: Callable[[str], None]) -> JobContext:
    def report(_: WatchEvent, text: str) -> None:
        hear(text)

    async with device.online() as store:
        return JobContext(device, Syncer(device, store, purpose="a test"), report)


def _set_up(machine: Machine, destination: Path) -> None:
    machine.call("backup", "setup", "--to", str(destination), "--keep", "2", "--every-hours", "12")


def test_the_job_is_due_once_a_folder_was_chosen_and_keeps_as_many_as_was_said(
    vault: Vault, tmp_path: Path
) -> None:
    async def main() -> VaultSecret:
        with opened(settings_of(vault.core)) as device:
            assert not jobs(await _work(device, print))[0].due()
        _set_up(vault.core, tmp_path / "destination")
        with opened(settings_of(vault.core)) as device:
            told: list[str] = []
            job = jobs(await _work(device, told.append))[0]
            assert (job.due(), job.every, job.heavy) == (True, 12 * 3600.0, True)
            said = [await job.run() for _ in range(3)]
            assert all("backed up" in line for line in said)
            await asyncio.sleep(0)
            assert any("backing up" in line for line in told)
            assert Activity.BACKUP in read_moments(device.journal)
            return device.member.secret

    secret = asyncio.run(main())
    kept = sorted(tmp_path.glob("destination/crystal-*"))
    assert len(kept) == 2
    assert verify_backup(kept[-1], lambda _: secret).problems == {}


def test_a_backup_that_is_cancelled_leaves_nothing(vault: Vault, tmp_path: Path) -> None:
    (vault.core.home / "large.bin").write_bytes(bytes(32 * 1024 * 1024))
    _set_up(vault.core, tmp_path / "destination")

    async def main() -> None:
        with opened(settings_of(vault.core)) as device:
            begun = asyncio.Event()
            work = await _work(device, lambda _: begun.set())
            run = asyncio.ensure_future(jobs(work)[0].run())
            await begun.wait()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run

    asyncio.run(main())
    assert [path.name for path in (tmp_path / "destination").iterdir()] == [".crystal-backups"]
