"""One vault and one running gateway for all tests of a module. Tests that change something make texts of their own."""

from collections.abc import Generator

import pytest
from playwright.sync_api import Browser

from tests.support.chromium import Tab, chromium, page_of
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


@pytest.fixture(scope="module")
def browser(gateway: Gateway) -> Generator[Browser]:
    """Comes after the gateway: while it is there this thread has an event loop that runs, and commands want their own."""
    assert gateway.url
    with chromium() as running:
        yield running


@pytest.fixture
def shown(browser: Browser, gateway: Gateway) -> Generator[Tab]:
    with page_of(browser, gateway) as opened:
        yield opened
