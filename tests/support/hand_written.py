"""Requests written by hand, for a vault's member."""

import contextlib
from collections.abc import AsyncGenerator

from tests.support.raw_http import RawConnection
from tests.support.relay_server import Member


def put_head(member: Member, key: str, size: int | str, *extra: str) -> bytes:
    lines = [
        f"PUT /v2/vaults/{member.vault}/objects/{key} HTTP/1.1",
        "Host: relay",
        f"Authorization: Bearer {member.token}",
        "If-None-Match: *",
        *([f"Content-Length: {size}"] if size != "" else []),
        *extra,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def get_head(member: Member, path: str, *extra: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: relay", f"Authorization: Bearer {member.token}", *extra]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncGenerator[RawConnection]:
    connection = await RawConnection.to(url)
    try:
        yield connection
    finally:
        await connection.close()
