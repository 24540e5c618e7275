# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# schemathesis leaves the type parameters of its cases open.
"""The description of the prototype's routes against the live server: there when they are served, and true."""

import asyncio
from collections.abc import Generator
from typing import Any

import httpx
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from crystal_prototype.relay.extension import PROTOTYPE
from crystal_prototype.relay.names import Role, V1Channel
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.openapi import openapi_document
from tests.prototype.device import let_in
from tests.relay.test_openapi import CHECKS
from tests.support.relay_server import threaded_relay

DOCUMENT: dict[str, Any] = msgspec.json.decode(openapi_document(extensions=[PROTOTYPE]))
PLAIN: dict[str, Any] = msgspec.json.decode(openapi_document())
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
PATHS = sorted(DOCUMENT["paths"].keys() - PLAIN["paths"].keys())
OPERATIONS = [
    (path, method, mode)
    for path in PATHS
    for method in DOCUMENT["paths"][path]
    for mode in GenerationMode
    # A drop's body can only be wrong by its size, beyond what is tried here; wrong channels are tried with pickups.
    if mode is GenerationMode.POSITIVE or method != "post"
]


pytestmark = pytest.mark.filterwarnings(
    # The relay in the other thread draws from `random` (its timetable's jitter) while a case is being drawn.
    "ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning"
)


@pytest.fixture(scope="module")
def relay() -> Generator[tuple[str, dict[Role, str]]]:
    store = MemoryStore()
    tokens = {role: asyncio.run(let_in(store, f"cc-{role}", role))[0] for role in Role}
    with threaded_relay(lambda: store, RelaySettings(), extensions=[PROTOTYPE]) as url:
        for channel in V1Channel:
            dropper = Role.NODE if channel.reader is Role.CORE else Role.CORE
            headers = {"Authorization": f"Bearer {tokens[dropper]}"}
            httpx.post(f"{url}/drop/{channel}", content=b"sealed", headers=headers).raise_for_status()
        yield url, tokens


@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS)
@pytest.mark.parametrize("role", Role)
@given(data=st.data())
@settings(
    max_examples=12,
    derandomize=True,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.filter_too_much,
        HealthCheck.too_slow,
    ],
)
def test_the_server_does_what_its_description_says(
    relay: tuple[str, dict[Role, str]],
    role: Role,
    path: str,
    method: str,
    mode: GenerationMode,
    data: st.DataObject,
) -> None:
    url, tokens = relay
    case = data.draw(SCHEMA[path][method].as_strategy(generation_mode=mode))
    headers = {"Authorization": f"Bearer {tokens[role]}"}
    case.call_and_validate(base_url=url, headers=headers, checks=CHECKS, timeout=30)


def test_every_route_of_the_prototype_is_described_and_no_other() -> None:
    app = create_app(MemoryStore(), RelaySettings(), extensions=[PROTOTYPE])
    served = {
        (route.path, method.lower())
        for route in app.state.relay.extensions["v1"].routes()
        if route.methods  # those without refuse what no other takes
        for method in route.methods - {"HEAD"}
    }
    assert served == {(path, method) for path in PATHS for method in DOCUMENT["paths"][path]}
    assert len(served) == 4
    assert create_app(MemoryStore(), RelaySettings()).state.relay.extensions == {}
