"""The web page: files of this package, read once. They hold no data; the page fetches that."""

from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_node.surfaces.gateway.requests import no_query

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOLDER = Path(__file__).parent / "web"
_START = "index.html"


class WebPage:
    """The files by their addresses: those in the folder. No path is made from a request."""

    def __init__(self, folder: Path = _FOLDER) -> None:
        self._files = {
            _address(path.relative_to(folder)): (path.read_bytes(), _TYPES[path.suffix])
            for path in sorted(folder.rglob("*"))
            if path.suffix in _TYPES
        }
        self._tags = {name: f'"{sha256(data).hexdigest()[:32]}"' for name, (data, _) in self._files.items()}

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(self._files)

    def routes(self) -> list[Route]:
        return [Route(path, self.file, methods=["GET"], include_in_schema=False) for path in self._files]

    async def file(self, request: Request) -> Response:
        """One file; 304 if the browser has it already."""
        no_query(request)
        path = request.scope["path"]
        data, kind = self._files[path]
        tag = self._tags[path]
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(None, 304, headers)
        return Response(data, 200, headers | {"content-type": kind})


def _address(path: Path) -> str:
    return "/" if path.as_posix() == _START else f"/{path.as_posix()}"
