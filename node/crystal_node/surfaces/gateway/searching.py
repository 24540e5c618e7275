"""The page's routes of searching and reading. Questions come in bodies: an address is kept in too many places."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_node.search.finding.documents import SearchRequest, ShowRequest
from crystal_node.surfaces.gateway.backend import Backend
from crystal_node.surfaces.gateway.documents import ShowQuery
from crystal_node.surfaces.gateway.errors import InvalidRequest
from crystal_node.surfaces.gateway.replies import DocumentReply
from crystal_node.surfaces.gateway.requests import json_of, no_query, query_of

ID_CHARS_MIN, ID_CHARS_MAX = 8, 64


class SearchRoutes:
    """Over a desk."""

    def __init__(self, desk: Backend) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        return [
            Route("/api/search", self.search, methods=["POST"]),
            Route("/api/show/{id}", self.show, methods=["GET"]),
        ]

    async def search(self, request: Request) -> Response:
        """Find texts."""
        no_query(request)
        asked = await json_of(request, SearchRequest)
        return DocumentReply(await self._desk.find(lambda finding: finding.search(asked)))

    async def show(self, request: Request) -> Response:
        """A text whole, with what stands around it."""
        given = str(request.path_params["id"])
        if not ID_CHARS_MIN <= len(given) <= ID_CHARS_MAX:
            raise InvalidRequest(f"an id has {ID_CHARS_MIN} to {ID_CHARS_MAX} digits")
        around = query_of(request, ShowQuery)
        asked = ShowRequest(id=given, before=around.before, after=around.after)
        return DocumentReply(await self._desk.find(lambda finding: finding.show(asked)))
