"""The application of `crystal serve`: all routes behind the guard."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from crystal_node.base.settings import Settings
from crystal_node.surfaces.gateway.access import GatewayAccess
from crystal_node.surfaces.gateway.backend import Backend
from crystal_node.surfaces.gateway.compatibility import CompatibilityRoutes
from crystal_node.surfaces.gateway.documents import DoneDocument, SessionDocument, SessionRequest
from crystal_node.surfaces.gateway.errors import NoToken, UnknownMethod, UnknownRoute
from crystal_node.surfaces.gateway.guard import GatewayGuard
from crystal_node.surfaces.gateway.limits import SESSION_BYTES_MAX
from crystal_node.surfaces.gateway.openapi import ApiRoute, openapi_document
from crystal_node.surfaces.gateway.page import WebPage
from crystal_node.surfaces.gateway.processes import Processes
from crystal_node.surfaces.gateway.replies import DocumentReply, error_document
from crystal_node.surfaces.gateway.requests import json_of, no_query
from crystal_node.surfaces.gateway.routes import api_routes

SESSION_PATH = "/api/session"


class Gateway(Starlette):
    """See the module. ``port``: where it is reached; ``environment``: of the commands that it starts."""

    def __init__(
        self,
        resolve: Callable[[], Settings],
        access: GatewayAccess,
        port: int,
        environment: Mapping[str, str],
    ) -> None:
        self._access = access
        self._port = port
        self._backend = Backend(resolve)
        self._page = WebPage()
        self._description = b""
        self._compatibility = CompatibilityRoutes(self._backend, Processes(environment))
        self.api = [
            ApiRoute(
                "POST",
                SESSION_PATH,
                self.open_session,
                "Use a link's code",
                SessionDocument,
                SessionRequest,
                token=False,
            ),
            ApiRoute("DELETE", SESSION_PATH, self.close_session, "Leave the page's session", DoneDocument),
            *api_routes(self._backend),
            *self._compatibility.routes,
            ApiRoute("GET", "/api/openapi.json", self.describe, "This description"),
        ]
        super().__init__(routes=[*self._page.routes(), *(route.served for route in self.api)])
        self.router.redirect_slashes = False

    def build_middleware_stack(self) -> ASGIApp:
        """The guard replaces Starlette's outermost middleware, which would answer our errors first."""
        routes = ExceptionMiddleware(self.router, handlers={HTTPException: no_route})
        return GatewayGuard(routes, self._access, self._port, {*self._page.paths, SESSION_PATH})

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """While it serves."""
        idle = asyncio.create_task(self._backend.let_go_when_idle())
        try:
            yield
        finally:
            idle.cancel()
            with suppress(asyncio.CancelledError):
                await idle
            await self._compatibility.aclose()
            self._backend.close()

    async def open_session(self, request: Request) -> Response:
        """Exchange a link's code, or the gateway's token, for a token of the page's own."""
        no_query(request)
        asked = await json_of(request, SessionRequest, bytes_max=SESSION_BYTES_MAX)
        header = request.headers.get("authorization")
        if not asked.code and header is not None and self._access.admits(header.encode("latin-1")):
            return DocumentReply(SessionDocument(token=self._access.new_session()))
        token = await self._backend.thread(lambda: self._access.open_session(asked.code))
        if token is None:
            raise NoToken("that link was opened before, or is too old")
        return DocumentReply(SessionDocument(token=token))

    async def describe(self, request: Request) -> Response:
        """Describe these routes."""
        no_query(request)
        if not self._description:
            self._description = msgspec.json.encode(openapi_document(self.api))
        return Response(self._description, media_type=DocumentReply.media_type)

    async def close_session(self, request: Request) -> Response:
        """End the page's session."""
        no_query(request)
        header = request.headers.get("authorization")
        self._access.close_session(header.encode("latin-1") if header else None)
        return DocumentReply(DoneDocument())


async def no_route(_request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == UnknownMethod.status:
        status, document = error_document(UnknownMethod("that method is not served here"))
        reply = DocumentReply(document, status)
        reply.headers.update(dict(error.headers or {}))
        return reply
    status, document = error_document(UnknownRoute("there is nothing at that address"))
    return DocumentReply(document, status)
