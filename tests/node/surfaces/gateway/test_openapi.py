# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# schemathesis leaves the type parameters of its cases open.
"""The gateway's description against the gateway: schemathesis sends what fits it and what does not."""

from pathlib import Path
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
from starlette.routing import Route

from crystal_node.base.clock import now_ms
from crystal_node.base.home import Home
from crystal_node.base.settings import Settings, resolve
from crystal_node.surfaces.gateway.access import GatewayAccess
from crystal_node.surfaces.gateway.app import Gateway as Application
from crystal_node.surfaces.gateway.openapi import openapi_document
from tests.support.gateway import Gateway


def _unset() -> Settings:
    raise NotImplementedError("no request is made")


APPLICATION = Application(
    _unset, GatewayAccess(Home(Path("/nowhere")), "a-token-of-the-tests", now_ms), 0, {}
)
DOCUMENT: dict[str, Any] = openapi_document(APPLICATION.api)
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
_LASTING = {"/process", "/v1/chat/completions", "/v1/models"}
"""What begins work, or asks a model: `test_published` has them."""
OPERATIONS = [
    (path, method, mode)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    for mode in GenerationMode
    if path not in _LASTING
    and (mode is GenerationMode.POSITIVE or operation["parameters"] or "requestBody" in operation)
]


@schemathesis.check
def wrong_is_refused_or_missing(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> bool | None:
    """What names nothing that is there is refused for that, which schemathesis does not count."""
    return None if response.status_code in (404, 413) else negative_data_rejection(ctx, response, case)


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    wrong_is_refused_or_missing,
]


@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS)
@given(data=st.data())
@settings(
    max_examples=6,
    derandomize=True,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.filter_too_much,
        HealthCheck.too_slow,
    ],
)
def test_the_gateway_does_what_its_description_says(
    gateway: Gateway, path: str, method: str, mode: GenerationMode, data: st.DataObject
) -> None:
    case = data.draw(SCHEMA[path][method].as_strategy(generation_mode=mode))
    case.call_and_validate(
        base_url=gateway.url.rstrip("/"),
        headers={"Authorization": f"Bearer {gateway.token}"},
        checks=CHECKS,
        timeout=60,
    )


def test_every_route_is_described(gateway: Gateway) -> None:
    environment = gateway.machine.environment | {"CRYSTAL_HOME": str(gateway.machine.home)}

    def settled() -> Any:
        return resolve(None, environment)

    application = Application(
        settled, GatewayAccess(settled().home, "a-token-of-the-tests", now_ms), gateway.port, {}
    )
    served = {
        (route.path, method.lower())
        for route in application.routes
        if isinstance(route, Route) and route.include_in_schema
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert served == {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert gateway.get("/api/openapi.json") == msgspec.json.decode(msgspec.json.encode(DOCUMENT))
