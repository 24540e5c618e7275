# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# schemathesis leaves the type parameters of its cases open.
"""The published description against the live server: schemathesis sends what fits it and what does not."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from crystal_relay.errors import BodyTooLarge
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.openapi import openapi_document
from crystal_relay.server.scopes import CHANNELS
from tests.support.direct_memory import DirectMemoryStore
from tests.support.relay_server import ENROLL_TOKEN, Member, enrolled, threaded_relay

SHUTS_OUT = ("/v2/vaults/{vault}/members",)
METRICS_TOKEN = "metrics-token-of-the-tests"
SETTINGS = RelaySettings(enroll_token=ENROLL_TOKEN, metrics_token=METRICS_TOKEN)
DOCUMENT: dict[str, Any] = msgspec.json.decode(openapi_document(metrics=True))
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)


@schemathesis.check
def wrong_is_refused(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> bool | None:
    """Too much of what is wrong is refused for being too much, which schemathesis does not count."""
    return (
        None if response.status_code == BodyTooLarge.status else negative_data_rejection(ctx, response, case)
    )


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    wrong_is_refused,
]
OPERATIONS = [
    (path, method, mode)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    for mode in GenerationMode
    # Where nothing can be said, nothing wrong can be said.
    if mode is GenerationMode.POSITIVE or operation["parameters"] or "requestBody" in operation
]


pytestmark = pytest.mark.filterwarnings(
    # The relay in the other thread draws from `random` (its timetable's jitter) while a case is being drawn.
    "ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning"
)


@pytest.fixture(scope="module")
def relay() -> Generator[tuple[str, Member]]:
    with threaded_relay(DirectMemoryStore, SETTINGS) as url:
        yield url, asyncio.run(enrolled(url))


@pytest.fixture(scope="module")
def member_of(relay: tuple[str, Member]) -> Callable[[str], Member]:
    """The device that asks, by path. Where it may shut itself out it has a vault for that alone."""
    url, member = relay
    others = {path: asyncio.run(enrolled(url)) for path in SHUTS_OUT}
    return lambda path: others.get(path, member)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS)
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
    relay: tuple[str, Member],
    member_of: Callable[[str], Member],
    path: str,
    method: str,
    mode: GenerationMode,
    data: st.DataObject,
) -> None:
    url, member = relay[0], member_of(path)
    known = {"vault": member.vault} if "{vault}" in path else {}
    case = data.draw(SCHEMA[path][method].as_strategy(generation_mode=mode, path_parameters=known or None))
    token = {"/v2/vaults": ENROLL_TOKEN, "/metrics": METRICS_TOKEN}.get(path, member.token)
    case.call_and_validate(
        base_url=url, headers={"Authorization": f"Bearer {token}"}, checks=CHECKS, timeout=30
    )


def test_every_channel_and_every_route_is_described() -> None:
    app = create_app(MemoryStore(), SETTINGS)
    served = {
        (route.path, method.lower())
        for route in app.state.relay.routes()
        for method in route.methods - {"HEAD"}
    }
    objects = "/v2/vaults/{vault}/objects/"
    served |= {
        (path, method.lower())
        for part in (app.state.relay, app.state.relay.objects, app.state.relay.batches)
        for path, methods in part.served.items()
        for method in set(methods) - {"HEAD"}
    }
    described = {
        (f"{objects}{{key:path}}" if path.startswith(objects) else path, method)
        for path, methods in DOCUMENT["paths"].items()
        for method in methods
    }
    assert described == served
    channels = {
        path.removeprefix(objects).partition("/")[0] for path in DOCUMENT["paths"] if path.startswith(objects)
    }
    assert channels == set(CHANNELS)
