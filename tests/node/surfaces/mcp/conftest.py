"""A memory for all tests of a module: a Core with a few texts. Tests that change what is remembered make texts of their own."""

import pytest

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
