"""The Core's jobs leave the catalog closed while nothing changes, and open it as soon as anything does."""

import asyncio
import os
from unittest import mock

from crystal_node.base.settings import resolve
from crystal_node.derive.artefacts import job as artefacts_job
from crystal_node.derive.catalog.rest import REST_SECONDS, CatalogRest
from crystal_node.derive.staging import job as staging_job
from crystal_node.device.device import opened
from crystal_node.sync.job_context import JobContext
from tests.support.machine import Vault


def test_jobs_rest_until_the_memory_or_the_settings_or_the_catalog_change(vault: Vault) -> None:
    async def work() -> None:
        with mock.patch.dict(os.environ, vault.core.environment, clear=True), opened(resolve()) as device:
            home = device.settings.home
            context = JobContext(device, None, lambda *_: None)  # type: ignore[arg-type]
            lock = home.state / "works.lock"

            for (job,) in (artefacts_job.jobs(context), staging_job.jobs(context)):

                async def opens(run: object = job.run) -> bool:
                    lock.unlink(missing_ok=True)
                    await run()  # type: ignore[operator]
                    return lock.exists()

                assert await opens(), "the first run"
                while await opens():  # the first one may have written to the memory
                    pass
                assert not await opens()
                with device.replica.transaction() as transaction:
                    transaction.meta_set("test", job.name.encode())
                assert await opens(), "the memory changed"
                assert not await opens()
                home.config_file.touch()
                assert await opens(), "the settings changed"
                assert not await opens()
                home.works_database.touch()
                assert await opens(), "another process used the catalog"
                assert not await opens()

    asyncio.run(work())


def test_a_job_rests_for_a_while_only_and_not_after_a_run_that_left_something(vault: Vault) -> None:
    with mock.patch.dict(os.environ, vault.core.environment, clear=True), opened(resolve()) as device:
        home, now = device.settings.home, [0.0]
        rest = CatalogRest(lambda: now[0])
        assert not rest.rests(device, home)
        assert not rest.rests(device, home), "the run left something"
        rest.begin(home)
        now[0] = REST_SECONDS - 1
        assert rest.rests(device, home)
        now[0] = REST_SECONDS
        assert not rest.rests(device, home)
