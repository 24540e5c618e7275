"""Reads from the bucket: small objects whole, large ones as streams, each with a connection.

The number of streams is limited, so that slow readers do not use up connections. Threads are used only while a piece is read.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from crystal_relay.errors import Busy, Closed
from crystal_relay.limits import PIECE_BYTES
from crystal_relay.s3.bucket import Bucket, DownloadStream, FoundObject
from crystal_relay.s3.calls import Calls
from crystal_relay.s3.settings import WHOLE_BYTES_MAX, S3Settings
from crystal_relay.store import Object


class Reads:
    """The reads of one store."""

    def __init__(self, bucket: Bucket, calls: Calls, settings: S3Settings) -> None:
        self._bucket = bucket
        self._calls = calls
        self._streams = asyncio.Semaphore(settings.streams_max)
        self._wait_seconds = settings.stream_wait_seconds

    async def get(self, key: str, start: int, length: int | None) -> Object | None:
        """An object or a part of it; None if the part begins at or beyond the end. Raises NotFound, Busy, StoreUnavailable."""
        fetched = await self._fetch(key, start, length)
        if not isinstance(fetched, FoundObject):
            return fetched
        if not self._streams.locked():
            await self._streams.acquire()  # does not wait: nobody came in between
            return self._streamed(fetched)
        # A waiting reader has no connection.
        self._close(fetched.stream)
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._streams.acquire()
        except TimeoutError:
            raise Busy("too many large objects are being read") from None
        try:
            fetched = await self._fetch(key, start, length)
        except BaseException:
            self._streams.release()
            raise
        if isinstance(fetched, FoundObject):
            return self._streamed(fetched)
        self._streams.release()
        return fetched

    async def _fetch(self, key: str, start: int, length: int | None) -> Object | FoundObject | None:
        def call() -> Object | FoundObject | None:
            found = self._bucket.get(key, start, length)
            if found is None or found.length > WHOLE_BYTES_MAX:
                return found
            try:
                data = found.stream.read(found.length)
                if len(data) == found.size:
                    return Object.of(data)
                return Object.part(data, size=found.size, start=found.start)
            finally:
                found.stream.close()

        def unwanted(found: Object | FoundObject | None) -> None:
            if isinstance(found, FoundObject):
                self._close(found.stream)

        return await self._calls.ask(self._calls.small, call, unwanted)

    def _streamed(self, found: FoundObject) -> Object:
        async def close() -> None:
            self._close(found.stream, gives_place=True)

        return Object(
            self._pieces(found.stream, found.length),
            size=found.size,
            start=found.start,
            length=found.length,
            close=close,
        )

    async def _pieces(self, stream: DownloadStream, left: int) -> AsyncIterator[bytes]:
        while left:
            piece = await self._calls.ask(self._calls.large, partial(stream.read, min(PIECE_BYTES, left)))
            left -= len(piece)
            yield piece

    def _close(self, stream: DownloadStream, *, gives_place: bool = False) -> None:
        """In the background: a read that nobody waits for may still run in it, for as long as the read time-out."""

        async def close() -> None:
            try:
                await self._calls.release(stream.close)
            except Closed:
                stream.close()  # the threads have ended: nobody reads in it
            finally:
                if gives_place:
                    self._streams.release()

        self._calls.start(close())
