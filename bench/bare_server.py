"""The least that a Starlette server can do: what the relay's HTTP side is measured against.

    PUT /…            reads the body piece by piece, answers 201
    GET /bytes/<n>    answers with n bytes, as one message up to 256 KiB, else piece by piece
    GET /small        answers with 4 KiB, by uvicorn alone

python -m bench.bare_server     prints its address on stdout once it serves
"""

import asyncio
import socket
from collections.abc import AsyncGenerator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

PIECE = bytes(256 * 1024)


async def put(request: Request) -> Response:
    async for _ in request.stream():
        pass
    return Response(status_code=201)


async def get(request: Request) -> Response:
    size = int(request.path_params["size"])
    if size <= len(PIECE):
        return Response(PIECE[:size], media_type="application/octet-stream")
    return StreamingResponse(
        _pieces(size), media_type="application/octet-stream", headers={"content-length": str(size)}
    )


async def _pieces(size: int) -> AsyncGenerator[bytes]:
    for _ in range(size // len(PIECE)):
        yield PIECE
    if size % len(PIECE):
        yield PIECE[: size % len(PIECE)]


_SMALL = PIECE[:4096]
_SMALL_HEADERS = [(b"content-type", b"application/octet-stream"), (b"content-length", b"%d" % len(_SMALL))]


def without_starlette(app: ASGIApp) -> ASGIApp:
    """Answer `/small` before the application does."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/small":
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": _SMALL_HEADERS})
        await send({"type": "http.response.body", "body": _SMALL})

    return answer


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    app = Starlette(
        routes=[
            Route("/{path:path}", put, methods=["PUT", "POST"]),
            Route("/bytes/{size:int}", get, methods=["GET"]),
        ]
    )
    config = uvicorn.Config(
        without_starlette(app),
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="error",
        timeout_graceful_shutdown=1,
    )
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
