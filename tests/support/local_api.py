"""The background service's API on a machine's socket, served by the tests' own process."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from crystal_node.agent.daemon.job_requests import JobRun
from crystal_node.base.errors import NoSuchEntry
from crystal_node.base.local_api import socket_path
from crystal_node.base.settings import Settings, resolve
from crystal_node.surfaces.gateway.local import LocalApi
from tests.support.machine import Machine


class NoJobs:
    """A service without jobs."""

    async def run(self, name: str, seconds: float) -> JobRun:
        raise NoSuchEntry(f"there is no job {name!r}")


def settings_of(machine: Machine) -> Settings:
    return resolve(environment=machine.environment | {"CRYSTAL_HOME": str(machine.home)})


@contextmanager
def served(machine: Machine) -> Generator[Settings]:
    settings = settings_of(machine)
    service = LocalApi(lambda: settings, NoJobs())
    assert service.start() == ""
    try:
        yield settings
    finally:
        service.stop()
    assert not Path(socket_path(str(settings.home.root))).exists()
