"""The same API on the background service's Unix socket, for programs of the home's owner: searches, hooks, jobs.

::

    crystal search, show, recall --hook, jobs run; MCP; gateway ──state/agent/api.sock──► routes ──threads──► Finder, jobs, …

Rules:

- Only the owner: the socket has mode 0600 in a folder of mode 0700, and on Linux the kernel is asked for the user at the other
  end. So no token is needed, and no page of a browser can reach it.
- It runs in a thread with an event loop of its own, beside the rounds: neither waits for the other, but for the interpreter.
- Nobody needs it. Where it cannot be had, or is of another version, the caller does the same by itself.
- What was asked is in no log.
"""

import asyncio
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.server import ServerState

from crystal_node.agent.daemon.job_requests import JobRunner
from crystal_node.agent.health.status import device_status
from crystal_node.agent.health.status_lines import status_lines
from crystal_node.agent.hooks.every_tool import has_hooks
from crystal_node.base.errors import ExitCode, describe
from crystal_node.base.local_api import (
    EXIT_CODE_HEADER,
    REQUEST_BYTES_MAX,
    VERSION,
    VERSION_HEADER,
    WAIT_SECONDS_MAX,
    has_sockets,
    short_name,
    socket_path,
)
from crystal_node.base.settings import Settings
from crystal_node.device.device import Device
from crystal_node.search.finding.documents import MemorySearch
from crystal_node.search.finding.finder import Finder
from crystal_node.search.recall.service import HookAnswer, recall_of
from crystal_node.surfaces.gateway.app import no_route
from crystal_node.surfaces.gateway.backend import Backend
from crystal_node.surfaces.gateway.documents import ErrorDocument
from crystal_node.surfaces.gateway.errors import GatewayError, InvalidRequest
from crystal_node.surfaces.gateway.limits import (
    LOCAL_CALLERS_MAX,
    LOCAL_HEAD_SECONDS_MAX,
    SHUTDOWN_SECONDS_MAX,
)
from crystal_node.surfaces.gateway.openapi import ApiRoute
from crystal_node.surfaces.gateway.replies import DocumentReply, error_document
from crystal_node.surfaces.gateway.requests import body_of, no_query, query_of
from crystal_node.surfaces.gateway.routes import api_routes
from crystal_node.surfaces.gateway.server import PatientHttp, http_config
from crystal_node.sync.members.news import lines_of

_log = logging.getLogger("crystal_node.agent.daemon")
_HEADERS = [(VERSION_HEADER, VERSION)]


class RunQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to wait for a job's end."""

    seconds: Annotated[float, msgspec.Meta(ge=0, le=WAIT_SECONDS_MAX)] = 0.0


class StatusLines(msgspec.Struct, frozen=True, kw_only=True):
    """The status in words. ``has_news``: there is news of the vault that nobody was shown yet."""

    lines: list[str]
    has_news: bool


class RecallQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose hook asks. ``plugin``: one of this tool's plugin; ``tool``: one of `crystal hooks install` in this tool, whose form
    of an answer is not Claude Code's."""

    plugin: str = ""
    tool: str = ""


class OtherVersion(GatewayError):
    """The caller speaks another version of the API."""

    status = 426
    code = "other-version"
    hint = "Start it again in the version that is installed."


class LocalApi:
    """One service's. ``settings``: the settings as they are at its call; ``jobs``: runs jobs in the service's own loop."""

    def __init__(self, settings: Callable[[], Settings], jobs: JobRunner) -> None:
        self._settings = settings
        self._jobs = jobs
        self._path = socket_path(str(settings().home.root))
        self._listening: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crystal-api", daemon=True)

    def start(self) -> str:
        """Serve from now on. Returns why that cannot be, "" if it can."""
        if not has_sockets():
            return "searches are not answered by the background service: this system has no such sockets"
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._path)  # noqa: PTH108  of a service that was killed: the home's lock says that there is no other
            with short_name(self._path) as name:
                if name is None:
                    return "searches are not answered by the background service: the home's path is too long for a socket"
                self._listening = _listening_at(name)
        except OSError as error:
            return f"searches are not answered by the background service: {error.strerror or error}"
        self._thread.start()
        self._ready.wait()
        return ""

    def stop(self) -> None:
        """Serve no more, and close the memory. Idempotent."""
        if self._listening is None:
            return
        self._listening = None
        with suppress(OSError):
            os.unlink(self._path)  # noqa: PTH108
        if self._loop is not None and self._over is not None:
            with suppress(RuntimeError):  # its loop is over
                self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._ready.set()  # also where it could not be begun: `start` waits for it

    async def _serve(self) -> None:
        assert self._listening is not None
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        backend = Backend(self._settings, partial(Finder, worker=True))
        config, state = (
            http_config(_Application(backend, self._jobs), _LocalHttp, LOCAL_CALLERS_MAX),
            ServerState(),
        )
        idle = asyncio.create_task(backend.let_go_when_idle())
        # Not by uvicorn's own server: that one wakes ten times a second, and this one has nothing to do for hours.
        server = await self._loop.create_server(
            lambda: _LocalHttp(config, state, {}), sock=self._listening, start_serving=True
        )
        self._ready.set()
        try:
            await self._over.wait()
        finally:
            server.close()
            idle.cancel()
            await _ended(state)
            backend.close()


class _Application(Starlette):
    """The gateway's routes, and what a hook and a waiting `crystal jobs run` ask for."""

    def __init__(self, backend: Backend, jobs: JobRunner) -> None:
        self._backend = backend
        self._jobs = jobs
        own = [
            ApiRoute("POST", "/api/recall", self.recall, "What a hook puts before an agent"),
            ApiRoute("GET", "/api/status/lines", self.status_lines, "The status in words", StatusLines),
            ApiRoute(
                "POST", "/api/jobs/{name}/run", self.run_job, "Have a job run now, and wait for its end"
            ),
        ]
        taken = {(route.method, route.path) for route in own}
        shared = [route for route in api_routes(backend) if (route.method, route.path) not in taken]
        super().__init__(routes=[route.served for route in (*own, *shared)])
        self.router.redirect_slashes = False

    def build_middleware_stack(self) -> ASGIApp:
        """Errors are made documents by us, outside of Starlette's own middleware."""
        return _LocalGuard(ExceptionMiddleware(self.router, handlers={HTTPException: no_route}))

    async def recall(self, request: Request) -> Response:
        """What a hook prints, for what it was given."""
        asked = query_of(request, RecallQuery)
        body = await body_of(request, REQUEST_BYTES_MAX)

        def recalled(memory: MemorySearch) -> HookAnswer:
            assert isinstance(memory, Finder), "that is what is opened here"
            if asked.plugin and has_hooks(memory.settings, asked.plugin):
                return HookAnswer(b"")
            return recall_of(memory, body, asked.plugin or asked.tool)

        answer = await self._backend.find(recalled)
        if await request.is_disconnected():
            await self._backend.thread(answer.lost)
            raise InvalidRequest("the hook has gone")
        return Response(answer.body, media_type="application/json")

    async def status_lines(self, request: Request) -> Response:
        """How this device stands, in the lines of `crystal status`, without what is new in the vault."""
        no_query(request)
        return DocumentReply(await self._backend.with_device(_status_lines))

    async def run_job(self, request: Request) -> Response:
        """Have a job run now, and wait for its end."""
        asked = query_of(request, RunQuery)
        return DocumentReply(await self._jobs.run(str(request.path_params["name"]), asked.seconds))


def _status_lines(device: Device) -> StatusLines:
    return StatusLines(
        lines=status_lines(device, device_status(device)), has_news=bool(lines_of(device.member))
    )


class _LocalGuard:
    """ASGI middleware: the version on the way in, errors with their exit codes on the way out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        try:
            given = dict(scope["headers"]).get(VERSION_HEADER, VERSION)
            if given != VERSION:
                raise OtherVersion("the background service is of another version")
            await self._app(scope, receive, guarded)
        except Exception as error:  # noqa: BLE001  where every error becomes an answer
            if begun:
                raise ConnectionResetError("the answer broke off") from None
            status, document = error_document(error)
            failure = describe(error)
            if failure.exit_code == ExitCode.UNEXPECTED:
                _log.error("a request failed unexpectedly: %s", type(error).__name__)
            if not isinstance(error, GatewayError):  # its owner is told all of it, as by any command
                document = ErrorDocument(error=failure.message, hint=failure.hint, code=document.code)
            reply = DocumentReply(document, status)
            reply.headers[EXIT_CODE_HEADER.decode()] = str(int(failure.exit_code))
            await reply(scope, receive, guarded)


class _LocalHttp(PatientHttp):
    """Ends the connection of another user, as far as the system tells who that is."""

    head_seconds = LOCAL_HEAD_SECONDS_MAX

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if _is_other(transport.get_extra_info("socket")):
            transport.abort()


async def _ended(state: ServerState) -> None:
    """Lets what is under way end, for a while; the others are hung up on, and do without."""
    for connection in [*state.connections]:
        connection.shutdown()
    if state.tasks:
        await asyncio.wait([*state.tasks], timeout=SHUTDOWN_SECONDS_MAX)
    for task in [*state.tasks]:
        task.cancel()
    for connection in [*state.connections]:
        connection.transport.abort()
    await asyncio.sleep(0)


def _listening_at(name: str) -> socket.socket:
    """Its owner's only, at no moment anybody else's: its folder is private too."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(name)
        os.chmod(name, 0o600)  # noqa: PTH101  the name is the socket's
        listening.listen(LOCAL_CALLERS_MAX)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def _is_other(caller: socket.socket) -> bool:
    """Whether another user is at the other end, as far as the system tells."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return False
    _, uid, _ = struct.unpack("3i", caller.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return bool(uid != os.geteuid())
