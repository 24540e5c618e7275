"""What the gateway itself refuses. Errors of other parts get their status by their exit code (``replies``)."""

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import ExitCode


class GatewayError(CrystalError):
    """The root. ``status`` and ``code`` are what the client is told."""

    exit_code = ExitCode.USAGE
    hint = "GET /api/openapi.json describes what is understood."
    status = 400
    code = "bad-request"


class InvalidRequest(GatewayError):
    """It cannot mean anything as it was sent."""


class WrongHost(GatewayError):
    """It was sent to another name than this machine's own: a page that points its name at this machine does so."""

    status = 421
    code = "wrong-host"
    hint = "Use http://127.0.0.1 or http://localhost, with the port."


class ForeignOrigin(GatewayError):
    """A page of another site sent it."""

    status = 403
    code = "foreign-origin"
    hint = "Only its own page and programs of this machine may ask the gateway."


class NoToken(GatewayError):
    """It bears no token."""

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


class BodyTooLarge(GatewayError):
    """Its body is."""

    status = 413
    code = "too-large"
    hint = "Send it in several parts."


class BodyTooSlow(GatewayError):
    """Its body did not come in time."""

    status = 408
    code = "too-slow"
    hint = "Send the body at once."


class NoAgent(GatewayError):
    """What was asked for is done by the agent, and none runs."""

    exit_code = ExitCode.BUSY
    status = 409
    code = "no-agent"
    hint = "`crystal agent start` starts it."


class Running(GatewayError):
    """The same is under way."""

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
