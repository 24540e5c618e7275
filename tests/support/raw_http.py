"""HTTP by hand: requests that no client library would send."""

import asyncio
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

REPLY_SECONDS_MAX = 20.0


@dataclass(frozen=True)
class RawReply:
    """Status, headers (lower-case names) and body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class RawConnection:
    """One TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, url: str) -> Self:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def half_close(self) -> None:
        self._writer.write_eof()

    async def reply(self, *, head_only: bool = False) -> RawReply:
        """The next answer. Raises asyncio.IncompleteReadError or ConnectionError when the connection ends before."""
        async with asyncio.timeout(REPLY_SECONDS_MAX):
            head = await self._reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines[1:] if line)
            }
            size = 0 if head_only else int(headers.get("content-length", "0"))
            return RawReply(int(lines[0].split()[1]), headers, await self._reader.readexactly(size))

    async def until(self, end: bytes) -> bytes:
        """What comes, up to and including these bytes."""
        return await self._reader.readuntil(end)

    async def is_closed(self, within: float) -> bool:
        """Whether the other side ends the connection in that time. Skips what still comes."""
        try:
            async with asyncio.timeout(within):
                while await self._reader.read(65_536):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return


async def raw_request(url: str, data: bytes) -> RawReply:
    """Send bytes on a connection of their own and read one answer."""
    connection = await RawConnection.to(url)
    try:
        await connection.send(data)
        return await connection.reply(head_only=data.startswith(b"HEAD"))
    finally:
        await connection.close()
