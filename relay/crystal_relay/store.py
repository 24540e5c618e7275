"""The port that every store implements: memory, local directory, HTTP client, object storage.

What implementers guarantee:

- Keys are as `crystal_relay.keys` says. Bytes are opaque.
- `put_new` and `put` return only when the object is durable: it survives the death of the process and of the machine.
  An error other than `StoreUnavailable` means that nothing was stored. After `StoreUnavailable` or a cancellation the outcome
  is unknown; the caller finds out by repeating the request or by reading.
- An object appears atomically. No reader sees a part of it, or a mixture of two writes to one key.
- Of any number of concurrent `put_new` on one key exactly one succeeds.
- A `list`, `get` or `wait` that starts after a write returned sees that write.
- `list` is in byte order of keys. Successive pages (`after` = the last key seen) miss no key that existed throughout. Keys
  written meanwhile may or may not appear.
- Calls may be concurrent, from one event loop. Each is bounded in memory whatever the size of the object; only `Object.read`
  holds a whole one.

Errors are those of `crystal_relay.errors`. Permanent: BadRequest, TooLarge, AlreadyExists, NotFound, Unauthorized,
Forbidden, StoreDamaged. Worth retrying: StoreUnavailable, Busy, and StoreFull after space was freed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import msgspec

from crystal_relay.errors import BadRange, BadRequest, BodyTooLarge, SizeMismatch
from crystal_relay.limits import LIST_LIMIT_MAX, OBJECT_BYTES_MAX, PIECE_BYTES, WAIT_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes to store, of a size known in advance.

    `open` yields the pieces from the beginning. A store calls it at most once in a try. A source that cannot be read twice has
    `repeatable` false, and is never retried.
    """

    size: int
    open: Callable[[], AsyncIterator[bytes]]
    repeatable: bool = True


class Object:
    """A stored object or the requested part of it, read once: whole, or piece by piece.

    `size` is that of the whole object, `length` the number of bytes that can be read, from `start`. Use it as an async context
    manager, or read it to the end, or `aclose` it: it may hold a file or a connection. Fewer bytes than `length` are an error.
    """

    __slots__ = ("_close", "_pieces", "held", "length", "size", "start")

    def __init__(
        self,
        pieces: AsyncIterator[bytes] | None,
        *,
        size: int,
        start: int,
        length: int,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`pieces`: None if they will be `held`."""
        self.size = size
        self.start = start
        self.length = length
        self._pieces = pieces
        self._close = close
        self.held: bytes | None = None
        """The bytes, if they are in memory anyway. Then there is nothing to close."""

    @classmethod
    def of(cls, whole: bytes, *, start: int = 0, length: int | None = None) -> Self:
        """A part of an object in memory. Raises BadRange, BadRequest."""
        count = part_length(len(whole), start, length)
        made = cls(None, size=len(whole), start=start, length=count)
        made.held = whole if count == len(whole) else whole[start : start + count]
        return made

    @classmethod
    def part(cls, part: bytes, *, size: int, start: int) -> Self:
        """The part of an object of `size` bytes that begins at `start`. Raises BadRange."""
        part_length(size, start, None)
        return cls(_pieces_of(part, 0, len(part)), size=size, start=start, length=len(part))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._read_and_close()

    async def read(self) -> bytes:
        """All bytes. Holds `length` bytes in memory."""
        if self.held is not None:
            return self.held
        return b"".join([piece async for piece in self])

    async def aclose(self) -> None:
        """Release the file or connection. Idempotent."""
        close, self._close = self._close, None
        if close is not None:
            await close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _read_and_close(self) -> AsyncIterator[bytes]:
        held, pieces = self.held or b"", self._pieces
        try:
            async for piece in _pieces_of(held, 0, len(held)) if pieces is None else pieces:
                yield piece
        finally:
            await self.aclose()


class Listed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key and the size of its object in bytes. A struct, since making one takes a fifth of a dataclass's time."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Page:
    """Keys in order. `more` says that there may be further ones; an empty page has none."""

    entries: tuple[Listed, ...]
    more: bool


class Store(Protocol):
    """A store of objects. The module's docstring has the guarantees."""

    async def put_new(self, key: str, body: bytes | Body) -> None:
        """Store under a free key. Raises AlreadyExists, and leaves the existing object untouched."""
        ...

    async def put(self, key: str, body: bytes | Body) -> None:
        """Store, replacing an existing object. Of concurrent calls the last one to finish wins."""
        ...

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        """The object, or at most `length` bytes of it from `start`; none if `start` is its size.

        The bytes are those at the time of the call, even if the object is overwritten or deleted meanwhile.
        Raises NotFound, BadRange (start beyond the end), BadRequest (negative start, length below 1).
        """
        ...

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        """Keys that begin with `prefix` and come after `after`, in order, at most `limit` (1 to 1,000)."""
        ...

    async def delete(self, key: str) -> None:
        """Remove the object. No error if there is none."""
        ...

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        """Wait until something under `prefix` is written after `token` was issued. Returns the token for the next call.

        With None, or a token that this store does not know (any more), it returns a fresh one at once: list, then wait with
        it, and nothing is missed. At the time limit (seconds, at most 60) it returns `token` itself. It may return without a
        write; it never misses one that was made in its own process. Deletions wake nobody.
        """
        ...

    async def aclose(self) -> None:
        """Finish accepted writes and release everything. Idempotent; other calls raise afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class DirectRequest:
    """A signed request that can be made at the store itself for a while. Address and headers are secrets."""

    method: str
    url: str = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    """Sent unchanged: they are signed."""
    expires_seconds: int
    receipt: str = field(default="", repr=False)
    """Of a write: the receipt that `head` returns if this request created the object."""


@dataclass(frozen=True, slots=True)
class Head:
    """An object's size, and the receipt of the write that created it ("" if it had none)."""

    size: int
    receipt: str = field(default="", repr=False)


@runtime_checkable
class DirectStore(Protocol):
    """A store whose large objects can be transferred without passing through its process.

    The guarantees of `Store` hold if the request of `direct_put` is followed by `head`, to see whose object is there, and then
    by `announce`.
    """

    @property
    def direct_puts(self) -> bool:
        """Whether the store is configured for `direct_put`."""
        ...

    @property
    def direct_gets(self) -> bool:
        """Whether the store is configured for `direct_get`."""
        ...

    async def direct_put(self, key: str, *, size: int, md5: bytes) -> DirectRequest:
        """A request that creates the object if the key is free, only from `size` bytes with this MD5."""
        ...

    async def direct_get(self, key: str) -> DirectRequest:
        """A request that reads the object, or a part of it with a Range header. Does not check that it exists."""
        ...

    async def head(self, key: str) -> Head:
        """Size and receipt of an object. Raises NotFound."""
        ...

    def announce(self, key: str) -> None:
        """Wake waiting callers: a direct request has written the object."""
        ...


@runtime_checkable
class ListingJson(Protocol):
    """A store that can list as JSON, so that a server need not make objects of what it only passes on."""

    async def list_json(
        self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX, cut: int = 0
    ) -> tuple[bytes, bool]:
        """As `list`: the entries as an array of objects with `key` and `size`, without the first `cut` characters of keys."""
        ...


@runtime_checkable
class Recalling(Protocol):
    """A store that keeps some objects in memory."""

    def recall(self, key: str, *, start: int = 0, length: int | None = None) -> Object | None:
        """As `get`, if the object is in memory, else None. It needs no `aclose`."""
        ...


@dataclass(frozen=True, slots=True)
class DiskStatus:
    """The disk that a store is on. `full`: it takes no new objects; reading and deleting still work."""

    free_bytes: int
    size_bytes: int
    full: bool


@runtime_checkable
class OnDisk(Protocol):
    """A store on a disk of this machine."""

    async def disk(self) -> DiskStatus:
        """Its space now."""
        ...


@runtime_checkable
class Renewable(Protocol):
    """A store with connections."""

    async def renew(self) -> None:
        """Close all connections; later calls use new ones."""
        ...


async def renew(store: Store) -> None:
    """Renew the connections of a store that has any."""
    if isinstance(store, Renewable):
        await store.renew()


@runtime_checkable
class HoldingStore(Protocol):
    """A store whose waits can last for long and show meanwhile that they go on."""

    async def hold(self, prefix: str, *, token: str, timeout: float, heard: Callable[[], None]) -> str:
        """As `Store.wait`, for up to `HELD_WAIT_SECONDS_MAX`. `heard` is called each time the store says that it still waits,
        and would hear of any write.

        A store that holds no waits returns `token` after at most `WAIT_SECONDS_MAX`, and calls nothing. Raises StoreUnavailable
        also if the store falls silent.
        """
        ...


async def hold(store: Store, prefix: str, *, token: str, timeout: float, heard: Callable[[], None]) -> str:
    """As `HoldingStore`, of any store."""
    if isinstance(store, HoldingStore):
        return await store.hold(prefix, token=token, timeout=timeout, heard=heard)
    return await store.wait(prefix, token=token, timeout=min(timeout, WAIT_SECONDS_MAX))


# --- shared by implementations ----------------------------------------------------------------------------------------


def part_length(size: int, start: int, length: int | None) -> int:
    """Number of bytes that `get` returns for a part. Raises BadRange, BadRequest."""
    check_part(start, length)
    if start > size:
        raise BadRange("the range begins beyond the end of the object")
    rest = size - start
    return rest if length is None else min(length, rest)


def check_part(start: int, length: int | None) -> None:
    """Raise BadRequest for a part that no object can have."""
    if start < 0 or (length is not None and length < 1):
        raise BadRequest("a part begins at 0 or later and has at least one byte")


def check_limit(limit: int) -> int:
    """Raise BadRequest for a page size out of range."""
    if not 1 <= limit <= LIST_LIMIT_MAX:  # §R3.7-1
        raise BadRequest(f"a page has 1 to {LIST_LIMIT_MAX} keys")
    return limit


def check_timeout(timeout: float) -> float:
    """Raise BadRequest for a waiting time out of range."""
    if not 0 <= timeout <= WAIT_SECONDS_MAX:  # §R3.8-1
        raise BadRequest(f"a wait takes 0 to {WAIT_SECONDS_MAX:.0f} seconds")
    return timeout


def body_size(body: bytes | Body) -> int:
    """The declared size. Raises TooLarge, BadRequest."""
    size = body.size if isinstance(body, Body) else len(body)
    if size < 0:
        raise BadRequest("a size is not negative")
    if size > OBJECT_BYTES_MAX:
        raise BodyTooLarge(f"an object has at most {OBJECT_BYTES_MAX} bytes")
    return size


async def checked_pieces(body: Body) -> AsyncIterator[bytes]:
    """The pieces of a body. Raises SizeMismatch as soon as there are too many bytes, or at the end too few.

    The last piece is held back until the source has ended, so that a body that is too long is never passed on as complete.
    """
    left = body.size
    held = b""
    async for piece in body.open():
        left -= len(piece)
        if left < 0:
            raise SizeMismatch("the body is longer than its declared size")
        if piece:
            if held:
                yield held
            held = piece
    if left:
        raise SizeMismatch("the body is shorter than its declared size")
    if held:
        yield held


def body_of(whole: bytes) -> Body:
    """Bytes in memory as a repeatable body."""
    return Body(len(whole), lambda: _pieces_of(whole, 0, len(whole)))


async def whole_body(body: bytes | Body) -> bytes:
    """All bytes of a body, with its size checked. Raises SizeMismatch."""
    if not isinstance(body, Body):
        return body
    return b"".join([piece async for piece in checked_pieces(body)])


async def _pieces_of(whole: bytes, start: int, end: int) -> AsyncIterator[bytes]:
    for at in range(start, end, PIECE_BYTES):
        yield whole[at : min(at + PIECE_BYTES, end)]
