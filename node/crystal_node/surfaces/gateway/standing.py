"""The page's routes of status: the documents of `crystal status --json` and `crystal sources status --json`, gathered anew."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_node.agent.health.status import standing, status_document
from crystal_node.derive.sources.service import sources_status
from crystal_node.device.device import Device
from crystal_node.surfaces.gateway.backend import Backend
from crystal_node.surfaces.gateway.replies import DocumentReply
from crystal_node.surfaces.gateway.requests import no_query


class StatusRoutes:
    """Over a desk."""

    def __init__(self, desk: Backend) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        return [
            Route("/api/status", self.status, methods=["GET"]),
            Route("/api/sources", self.sources, methods=["GET"]),
        ]

    async def status(self, request: Request) -> Response:
        """How this device stands, its devices and channels."""
        no_query(request)
        return DocumentReply(await self._desk.with_device(_document))

    async def sources(self, request: Request) -> Response:
        """The sources of documents, and how each stands."""
        no_query(request)
        return DocumentReply(await self._desk.with_device(sources_status))


def _document(device: Device) -> dict[str, object]:
    return status_document(device, standing(device))
