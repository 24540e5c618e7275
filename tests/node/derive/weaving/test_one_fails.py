"""An agent that cannot be woven keeps no other waiting: by the timetable, and in staging."""

import asyncio
import json
import os
from unittest import mock

import pytest

from crystal_node.base.errors import LocalStorage
from crystal_node.base.events import WatchEvent
from crystal_node.base.settings import resolve
from crystal_node.derive.artefacts import job as artefacts_job
from crystal_node.derive.catalog.agents import Weave
from crystal_node.derive.staging.service import advance
from crystal_node.derive.weaving import job as weaving_job
from crystal_node.device.device import opened
from crystal_node.device.privacy import PrivateNow
from crystal_node.sync.job_context import JobContext
from tests.support.machine import Machine, Vault


def _unheard(_event: WatchEvent, _text: str) -> None:
    """Nobody listens."""


def _drop(machine: Machine, agent: str) -> None:
    folder = machine.home / "drop" / agent
    folder.mkdir(parents=True)
    said = {"role": "user", "text": "We decided to use teak.", "timestamp": "2026-01-05T09:00:00Z"}
    (folder / "one.jsonl").write_text(json.dumps(said) + "\n")


def test_by_the_timetable_the_others_are_woven_and_the_failure_is_told(vault: Vault) -> None:
    core = vault.core
    core.extra |= {"CRYSTAL_SUMMARY_PROVIDER": "none", "CRYSTAL_WEAVE_EVERY_HOURS": "24"}
    for agent in ("alpha", "zeta"):
        _drop(core, agent)
    core.call("capture")
    core.call("sync")
    elsewhere = core.root / "elsewhere"
    elsewhere.mkdir()
    (core.home / "agents" / "alpha" / "memory").mkdir(parents=True)
    (core.home / "agents" / "alpha" / "memory" / "journals").symlink_to(elsewhere)

    async def run() -> None:
        with opened(resolve()) as device:
            work = JobContext(device, None, _unheard)  # type: ignore[arg-type]
            await artefacts_job.jobs(work)[0].run()
            weave = next(job for job in weaving_job.jobs(work) if job.name == "dream-weave")
            with pytest.raises(LocalStorage, match="is a link"):
                await weave.run()

    with mock.patch.dict(os.environ, core.environment, clear=True):
        asyncio.run(run())
    assert list((core.home / "agents" / "zeta" / "memory" / "journals").iterdir())
    assert list(elsewhere.iterdir()) == []


def test_in_staging_a_mistake_is_the_failure_of_one_agent_and_privacy_is_none(vault: Vault) -> None:
    laptop = vault.add()
    for agent in ("alpha", "midst", "zeta"):
        _drop(laptop, agent)
    laptop.call("capture")
    vault.settle()
    vault.core.extra["CRYSTAL_STAGING"] = "extractive"

    async def weaver(agent: str, _how: Weave) -> str:
        if agent == "alpha":
            raise AssertionError("a mistake")
        if agent == "midst":
            raise PrivateNow("private mode is on")
        return ""

    async def run() -> None:
        with opened(resolve()) as device:
            for _ in range(2):
                await advance(device, device.settings, weaver)

    with mock.patch.dict(os.environ, vault.core.environment, clear=True):
        asyncio.run(run())
    listed = {one["agent"]: one for one in vault.core.call("staging", "list", "--json").json["agents"]}
    states = {agent: one["state"] for agent, one in listed.items()}
    assert states == {"alpha": "failed", "midst": "weaving"}  # the last of them is live
    assert "a mistake in Crystal" in listed["alpha"]["failure"]
