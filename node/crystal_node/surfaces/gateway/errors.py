"""Errors of the gateway itself. Errors of other parts get their status by their exit code (``replies``)."""

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import ExitCode


class GatewayError(CrystalError):
    """The base class. ``status`` and ``code`` are sent to the client."""

    exit_code = ExitCode.USAGE
    hint = "GET /api/openapi.json describes what is understood."
    status = 400
    code = "bad-request"


class InvalidRequest(GatewayError):
    """The request makes no sense."""


class WrongHost(GatewayError):
    """It names another host, as a page does that points its own name at this machine."""

    status = 421
    code = "wrong-host"
    hint = "Use http://127.0.0.1 or http://localhost, with the port."


class ForeignOrigin(GatewayError):
    """A page of another site sent it."""

    status = 403
    code = "foreign-origin"
    hint = "Only its own page and programs of this machine may ask the gateway."


class NoToken(GatewayError):
    """It has no valid token."""

    status = 401
    code = "no-token"
    hint = "`crystal serve --link` prints a link that opens the page; programs send the token of state/gateway/token."


class UnknownRoute(GatewayError):
    """There is nothing at that address."""

    status = 404
    code = "no-such-route"
    hint = "GET /api/openapi.json lists what there is."


class UnknownMethod(GatewayError):
    """The route is there, the method is not."""

    status = 405
    code = "no-such-method"


class RequestTooLarge(GatewayError):
    """The body is too large."""

    status = 413
    code = "too-large"
    hint = "Send it in several parts."


class BodyTooSlow(GatewayError):
    """The body did not come in time."""

    status = 408
    code = "too-slow"
    hint = "Send the whole body without pauses."


class NoAgent(GatewayError):
    """The background service does this, and it does not run."""

    exit_code = ExitCode.BUSY
    status = 409
    code = "no-agent"
    hint = "`crystal agent start` starts it."


class Running(GatewayError):
    """The same is running already."""

    exit_code = ExitCode.BUSY
    status = 409
    code = "running"
    hint = "Ask again when that is over."


class NoProvider(GatewayError):
    """There is no language model to pass a conversation on to."""

    exit_code = ExitCode.MODEL
    status = 503
    code = "no-provider"
    hint = "Start one on this machine (Ollama, MLX), or `crystal config set llm_provider`."


class PortInUse(GatewayError):
    """Another program listens there."""

    exit_code = ExitCode.BUSY
    hint = "Choose another with --port, or stop the program that listens there."
