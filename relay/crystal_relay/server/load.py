"""Limits the memory of unfinished bodies and of unread responses: in total, and for each vault.

A small body is received whole before the store is called; a large one has some pieces in memory. Most bodies arrive with their
head and never count here. A client that sends slowly occupies what it has sent, and one that reads slowly its response;
without a total limit many such clients would use up all memory, and without one for each vault one vault could block others.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from starlette.types import Message, Send

from crystal_relay.errors import Busy
from crystal_relay.limits import KIB, MIB, PIECE_BYTES

GATHERED_BYTES_MAX = 128 * MIB
GATHERED_BYTES_OF_VAULT_MAX = 16 * MIB
ANSWERED_BYTES_MAX = 128 * MIB
ANSWERED_BYTES_OF_VAULT_MAX = 16 * MIB
STREAM_BYTES = 2 * PIECE_BYTES
"""Bytes counted for a body or a response that is streamed."""
TAKEN_AT_ONCE_BYTES_MAX = 64 * KIB
"""Responses up to this size are not counted: the connection buffers about as much."""


class Load:
    """The memory limits of one relay process."""

    def __init__(
        self,
        *,
        bytes_max: int = GATHERED_BYTES_MAX,
        bytes_of_vault_max: int = GATHERED_BYTES_OF_VAULT_MAX,
        answered_bytes_max: int = ANSWERED_BYTES_MAX,
        answered_bytes_of_vault_max: int = ANSWERED_BYTES_OF_VAULT_MAX,
    ) -> None:
        self._gathered = _Room(bytes_max, bytes_of_vault_max)
        self._answered = _Room(answered_bytes_max, answered_bytes_of_vault_max)

    @property
    def gathered_bytes(self) -> int:
        """Bytes reserved for arriving bodies."""
        return self._gathered.bytes

    @property
    def answered_bytes(self) -> int:
        """Bytes of responses that clients have not read yet."""
        return self._answered.bytes

    @contextmanager
    def gathering(self, vault: str, size: int) -> Generator[None]:
        """Reserve memory for an arriving body. `vault` is the owner of the share. Raises Busy."""
        with self._gathered.of(vault, size, "the relay is receiving as much as it can hold"):
            yield

    @contextmanager
    def answering(self, vault: str, size: int) -> Generator[None]:
        """Reserve memory for a response until it is read: send it through `taken`. Raises Busy."""
        with self._answered.of(vault, size, "the relay is sending as much as it can hold"):
            yield


def taken(send: Send) -> Send:
    """A `send` that returns from the end of a response only when the client has read nearly all of it, or has gone.

    The server waits before sending when too much is unsent, not after: so the end is sent as a message of its own.
    """

    async def send_and_wait(message: Message) -> None:
        if message["type"] != "http.response.body" or message.get("more_body", False):
            await send(message)
            return
        await send({**message, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return send_and_wait


class _Room:
    """A total limit, and one for each vault. A single item may be larger than a vault's share."""

    def __init__(self, bytes_max: int, bytes_of_vault_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._bytes_of_vault_max = bytes_of_vault_max
        self._bytes_of: Counter[str] = Counter()

    @contextmanager
    def of(self, vault: str, size: int, full: str) -> Generator[None]:
        have = self._bytes_of.get(vault, 0)
        # §R9-9, §R9-10
        if self.bytes + size > self._bytes_max or (have and have + size > self._bytes_of_vault_max):
            raise Busy(full)
        self.bytes += size
        self._bytes_of[vault] += size
        try:
            yield
        finally:
            self.bytes -= size
            self._bytes_of[vault] -= size
            if not self._bytes_of[vault]:
                del self._bytes_of[vault]
