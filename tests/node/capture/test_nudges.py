"""Recording wakes a running watcher, unless the watcher itself records: it is told by the report."""

import asyncio
import os
from collections.abc import Iterator
from unittest import mock

import pytest

from crystal_node.base.settings import resolve
from crystal_node.capture.recorder import Recorder
from crystal_node.device.device import Device, opened
from tests.support.machine import Vault, transcript


@pytest.fixture
def device(vault: Vault) -> Iterator[Device]:
    with mock.patch.dict(os.environ, vault.core.environment, clear=True), opened(resolve()) as device:
        device.settings.home.nudge_folder.mkdir(exist_ok=True)
        _asked_for_a_round(device)
        yield device


def _asked_for_a_round(device: Device) -> bool:
    """Whether anybody has since this was called last."""
    file = device.settings.home.nudge_file
    asked = file.exists() and file.stat().st_mtime > 0
    file.touch()
    os.utime(file, (0, 0))
    return asked


def test_a_watcher_that_records_is_not_woken_by_its_own_nudge(vault: Vault, device: Device) -> None:
    """It made two rounds for each message."""
    for nudges in (False, True):
        transcript(vault.core, f"the tide gauge has {4 + nudges} sensors")
        assert asyncio.run(Recorder(device, nudges=nudges).record()).operations == 1
        assert _asked_for_a_round(device) is nudges
