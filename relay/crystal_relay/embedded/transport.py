"""The asking side of an embedded relay, which begins to serve where nobody does. Loads no server before."""

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from crystal_relay.embedded import SOCKET_NAME
from crystal_relay.errors import InUse
from crystal_relay.http1 import Http1Transport
from crystal_relay.unix_socket import short_path

if TYPE_CHECKING:
    from crystal_relay.embedded.relay import EmbeddedRelay

URL = "http://localhost"
"""What a client of an embedded relay calls it. No connection goes there."""
TAKE_OVER_SECONDS_MAX = 20.0
"""How long the one who serves may take to end before a request to it counts as failed."""
_LOOK_SECONDS = 0.02


class EmbeddedTransport(httpx.AsyncBaseTransport):
    """Requests to a directory's relay, for `HttpStore` and others. Close it on the loop that used it.

    Where nobody serves the directory, the first request makes this process serve it until `aclose`.
    """

    def __init__(self, directory: Path, *, serves: bool = True) -> None:
        """`serves` is False where another part of this process serves, or will."""
        self._directory = directory
        self._serves = serves
        self._changing = asyncio.Lock()
        self._open = ExitStack()
        self._line: Http1Transport | None = None
        self._relay: EmbeddedRelay | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request. Raises as httpx, and as `EmbeddedRelay.open` where this process is to serve and cannot."""
        deadline = time.monotonic() + TAKE_OVER_SECONDS_MAX
        while True:
            try:
                return await (await self._connected()).handle_async_request(request)
            except httpx.ConnectError:  # nothing of the request was read
                if self._relay is not None:
                    raise
                await self._serve(deadline)

    async def aclose(self) -> None:
        """Close the connections; stop serving."""
        async with self._changing:
            if self._line is not None:
                await self._line.aclose()
                self._line = None
            if self._relay is not None:
                await self._relay.aclose()
                self._relay = None
            self._open.close()

    async def _connected(self) -> Http1Transport:
        if self._line is None:
            async with self._changing:
                if self._line is None:
                    self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                    path = self._open.enter_context(short_path(self._directory, SOCKET_NAME))
                    # A connection for each request: one that is kept might be closed by a relay that ends just when a request
                    # goes over it, and nobody could tell whether that was carried out.
                    self._line = Http1Transport(kept=0, unix_socket=path)
        return self._line

    async def _serve(self, deadline: float) -> None:
        """Serve, unless somebody else has begun to meanwhile. Raises as `EmbeddedRelay.open`; InUse at the deadline."""
        async with self._changing:
            if self._relay is not None:
                return
            from crystal_relay.embedded.relay import EmbeddedRelay

            try:
                if self._serves:
                    self._relay = await EmbeddedRelay.open(self._directory)
                    return
            except InUse:
                if time.monotonic() > deadline:
                    raise
            if time.monotonic() > deadline:
                raise InUse(f"nobody serves {self._directory}")
            await asyncio.sleep(_LOOK_SECONDS)
