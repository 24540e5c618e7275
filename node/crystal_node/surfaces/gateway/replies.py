"""Answers: documents as JSON, and any error as a document with its status."""

import msgspec
from starlette.responses import Response

from crystal_core.llm.errors import LlmError
from crystal_node.base.errors import ExitCode, describe
from crystal_node.surfaces.gateway.documents import ErrorDocument
from crystal_node.surfaces.gateway.errors import GatewayError

STATUSES: dict[int, int] = {
    ExitCode.USAGE: 400,
    ExitCode.NOT_SET_UP: 409,
    ExitCode.RELAY_UNREACHABLE: 503,
    ExitCode.RELAY_REFUSED: 502,
    ExitCode.RELAY_MISBEHAVES: 502,
    ExitCode.WRONG_KEY: 503,
    ExitCode.STORAGE: 503,
    ExitCode.BUSY: 503,
    ExitCode.NOT_FOUND: 404,
    ExitCode.NO_ANSWER: 504,
    ExitCode.MODEL: 502,
}
_CODES = {
    400: "bad-request",
    404: "not-found",
    409: "not-set-up",
    502: "upstream",
    503: "unavailable",
    504: "no-answer",
}
MISTAKE = ErrorDocument(
    error="the gateway made a mistake",
    hint="`crystal serve` says where on its terminal. Please report it.",
    code="mistake",
)


class DocumentReply(Response):
    """A document."""

    media_type = "application/json"

    def __init__(self, content: object, status: int = 200) -> None:
        super().__init__(msgspec.json.encode(content), status)


def error_document(error: BaseException) -> tuple[int, ErrorDocument]:
    """The status and document of an error. An unexpected one is shown only on the terminal: it may quote anything."""
    if isinstance(error, GatewayError):
        return error.status, ErrorDocument(error=str(error), hint=error.hint, code=error.code)
    failure = describe(error)
    if failure.exit_code == ExitCode.UNEXPECTED and not isinstance(error, LlmError):
        return 500, MISTAKE
    status = STATUSES.get(failure.exit_code, 500)
    code = _CODES.get(status, "mistake")
    return status, ErrorDocument(error=failure.message, hint=failure.hint, code=code)


def error_words(error: BaseException, message: str, code: str) -> dict[str, object]:
    """An error in the form of chat completions."""
    kind = "invalid_request_error" if isinstance(error, GatewayError) else "api_error"
    kind = "upstream_error" if isinstance(error, LlmError) else kind
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}
