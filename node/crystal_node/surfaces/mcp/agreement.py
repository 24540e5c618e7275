"""Consent of a client's person to what cannot be undone, in both ways that the protocol has.

Up to the version of 2025 the server asks while the call waits; from 2026 on it answers the call with the question, and the
client repeats the call with what its person said.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from crystal_node.surfaces.mcp.calls import Call, NotAgreed, Question

_KEY = "agreement"
_FIELD = "agreed"


async def agreed(
    context: ServerRequestContext[Any, Any],
    params: types.CallToolRequestParams,
    call: Call,
    question: Callable[[], Awaitable[Question]],
) -> types.InputRequiredResult | None:
    """Ask the person, if this client can; ``call.asked`` is true afterwards. The result goes to the client.

    Raises:
        NotAgreed: the person did not say yes.
    """
    if not _can_ask(context):
        return None
    asked = await question()
    form = types.ElicitRequestFormParams(message=asked.text, requested_schema=_schema(asked))
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        answer = await context.session.elicit_form(
            form.message, form.requested_schema, related_request_id=context.request_id
        )
    else:
        given = (params.input_responses or {}).get(_KEY)
        redeemed = call.pledges.redeem(params.request_state or "", asked.about)
        if not isinstance(given, types.ElicitResult) or not redeemed:
            return types.InputRequiredResult(
                input_requests={_KEY: types.ElicitRequest(params=form)},
                request_state=call.pledges.give(asked.about),
            )
        answer = given
    if answer.action != "accept" or (answer.content or {}).get(_FIELD) is not True:
        raise NotAgreed("the person did not agree")
    call.asked = True
    return None


def _can_ask(context: ServerRequestContext[Any, Any]) -> bool:
    capabilities = context.session.client_capabilities
    can = capabilities.elicitation if capabilities is not None else None
    return can is not None and (can.form is not None or can.url is None)


def _schema(question: Question) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {_FIELD: {"type": "boolean", "title": question.yes, "default": False}},
        "required": [_FIELD],
    }
