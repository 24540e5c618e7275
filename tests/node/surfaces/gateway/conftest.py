"""One vault and one running gateway for all tests of a module. Tests that change something make texts of their own."""

from collections.abc import Generator

import pytest

from tests.support.gateway import Gateway, running_gateway
from tests.support.machine import Machine, core_that_heard
from tests.support.relay_process import RelayProcess

SAID = (
    "The retry budget of the importer is eleven attempts in an hour.",
    "We decided to keep the raw readings of the sensors for ninety days.",
    "The harbour crane is serviced every second Tuesday by Ingrid.",
)


@pytest.fixture(scope="module")
def memory(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return core_that_heard(relay, tmp_path_factory.mktemp("memory"), *SAID)


@pytest.fixture(scope="module")
def gateway(memory: Machine) -> Generator[Gateway]:
    with running_gateway(memory) as running:
        yield running
