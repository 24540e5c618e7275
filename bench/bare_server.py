"""The least that a Starlette server can do: read the body, answer 201. What the relay's HTTP side is measured against.

python -m bench.bare_server     prints its address on stdout once it serves
"""

import asyncio
import socket

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

BODY = bytes(4096)


async def put(request: Request) -> Response:
    async for _ in request.stream():
        pass
    return Response(status_code=201)


async def get(_: Request) -> Response:
    return Response(BODY, media_type="application/octet-stream")


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    app = Starlette(
        routes=[Route("/{path:path}", put, methods=["PUT"]), Route("/{path:path}", get, methods=["GET"])]
    )
    config = uvicorn.Config(
        app,
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
