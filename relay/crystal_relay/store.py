"""The port that every store implements: memory, local directory, HTTP client, object storage.

What implementers hold, and callers may build on:

- Keys are as `crystal_relay.keys` says. Bytes are opaque.
- `put_new` and `put` return only when the object is durable: it survives the death of the process and of the machine.
  An error other than `StoreUnavailable` means that nothing was stored. After `StoreUnavailable` or a cancellation it is
  unknown; the caller finds out by repeating the request or by reading.
- An object appears at once and whole. Nobody ever sees a part of it, or a mixture of two writes to one key.
- Of any number of concurrent `put_new` on one key exactly one succeeds.
- A `list`, `get` or `wait` that starts after a write returned sees that write.
- `list` is in byte order of keys, and repeated pages (`after` = the last key seen) miss no key that was there
  throughout. Keys written meanwhile may or may not show.
- Everything may be called concurrently, from one event loop. Each call is bounded in memory whatever the size of the
  object; only `Object.read` holds a whole one.

Errors are those of `crystal_relay.errors`. Permanent: BadRequest, TooLarge, AlreadyExists, NotFound, Unauthorized,
Forbidden, StoreDamaged. Worth repeating: StoreUnavailable, Busy, and StoreFull after somebody made room.
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
    """Bytes to store, of a size that is known before the first of them is.

    `open` gives the pieces from the beginning. A store calls it at most once in a try. A source that cannot be read a
    second time says so by `repeatable`, and is then never tried again.
    """

    size: int
    open: Callable[[], AsyncIterator[bytes]]
    repeatable: bool = True


class Object:
    """A stored object, or the part of it that was asked for: read once, as a whole or piece by piece.

    `size` is that of the whole object, `length` the number of bytes that this one gives, from `start`. Use it as an
    async context manager, or read it to the end, or `aclose` it: it may hold a file or a connection. Fewer bytes than
    `length` never come without an error.
    """

    __slots__ = ("_close", "_pieces", "held", "length", "size", "start")

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        *,
        size: int,
        start: int,
        length: int,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.size = size
        self.start = start
        self.length = length
        self._pieces = pieces
        self._close = close
        self.held: bytes | None = None
        """All of it, if it is in memory anyway."""

    @classmethod
    def of(cls, whole: bytes, *, start: int = 0, length: int | None = None) -> Self:
        """The asked part of an object that is in memory. Raises BadRange, BadRequest."""
        count = part_length(len(whole), start, length)
        made = cls(_pieces_of(whole, start, start + count), size=len(whole), start=start, length=count)
        made.held = whole if count == len(whole) else whole[start : start + count]
        return made

    @classmethod
    def part(cls, part: bytes, *, size: int, start: int) -> Self:
        """Bytes in memory that are the part from `start` of an object of that size. Raises BadRange."""
        part_length(size, start, None)
        return cls(_pieces_of(part, 0, len(part)), size=size, start=start, length=len(part))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._read_and_close()

    async def read(self) -> bytes:
        """All of it. Holds `length` bytes in memory."""
        if self.held is not None:
            return self.held
        return b"".join([piece async for piece in self])

    async def aclose(self) -> None:
        """Release what it holds. Idempotent."""
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
        try:
            async for piece in self._pieces:
                yield piece
        finally:
            await self.aclose()


class Listed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key and the size of its object in bytes. Lists hold many: a struct is made in a fifth of a dataclass's time."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Page:
    """Some keys in order. `more`: there may be further ones after the last. An empty page has no more."""

    entries: tuple[Listed, ...]
    more: bool


class Store(Protocol):
    """See the module's docstring for what holds of all of it."""

    async def put_new(self, key: str, body: bytes | Body) -> None:
        """Store under a key that is free. Raises AlreadyExists and leaves what is there untouched."""
        ...

    async def put(self, key: str, body: bytes | Body) -> None:
        """Store, in place of what is there. Of concurrent calls the last one to finish wins, whole."""
        ...

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        """The object, or `length` bytes of it from `start`, fewer at its end; none if `start` is its size.

        The bytes are those that were there at the call, whatever is overwritten or deleted meanwhile.
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
        """Sleep until something under `prefix` was written since `token` was given out. Returns a token to go on with.

        With None, or a token that this store does not know (it restarted, or forgot), it returns at once with a fresh
        one: list, then wait with it, and nothing is missed. At the time limit (seconds, at most 60) it returns `token`
        again. It may wake for nothing; it never misses a write that was made in its own process. Deletions wake nobody.
        """
        ...

    async def aclose(self) -> None:
        """Finish what was accepted and release everything. Idempotent; other calls afterwards raise."""
        ...


# --- stores that others can be sent to --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DirectRequest:
    """A request that whoever holds it may make at the store itself, for a while. Address and headers are secrets."""

    method: str
    url: str = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    """To be sent as they are: they are part of what was signed."""
    expires_seconds: int
    receipt: str = field(default="", repr=False)
    """Of a write: what `head` tells of the object if it was this request that created it."""


@dataclass(frozen=True, slots=True)
class Head:
    """An object's size, and the receipt of the write that created it ("" if it had none)."""

    size: int
    receipt: str = field(default="", repr=False)


@runtime_checkable
class DirectStore(Protocol):
    """What a store offers beside `Store`, if large objects can go to and from it without passing through its process.

    The promises of the port hold for who does as told: send the request of `direct_put`, then ask `head` whose object is
    there, then `announce` it.
    """

    @property
    def direct_puts(self) -> bool:
        """Whether `direct_put` can be used, as the store is set up."""
        ...

    @property
    def direct_gets(self) -> bool:
        """Whether `direct_get` can."""
        ...

    async def direct_put(self, key: str, *, size: int, md5: bytes) -> DirectRequest:
        """A request that creates the object, if the key is free, from `size` bytes with that MD5 and from no others."""
        ...

    async def direct_get(self, key: str) -> DirectRequest:
        """A request that reads the object, or with a Range header a part of it. Does not look whether it is there."""
        ...

    async def head(self, key: str) -> Head:
        """Raises NotFound."""
        ...

    def announce(self, key: str) -> None:
        """Wake who waits: the object was written by a direct request."""
        ...


# --- what implementers share ------------------------------------------------------------------------------------------


def part_length(size: int, start: int, length: int | None) -> int:
    """How many bytes a `get` of a part gives. Raises BadRange, BadRequest."""
    check_part(start, length)
    if start > size:
        raise BadRange("the range begins beyond the end of the object")
    rest = size - start
    return rest if length is None else min(length, rest)


def check_part(start: int, length: int | None) -> None:
    """Raises BadRequest for a part that no object has."""
    if start < 0 or (length is not None and length < 1):
        raise BadRequest("a part begins at 0 or later and has at least one byte")


def check_limit(limit: int) -> int:
    """Raises BadRequest for a page size that is not allowed."""
    if not 1 <= limit <= LIST_LIMIT_MAX:  # §R3.7-1
        raise BadRequest(f"a page has 1 to {LIST_LIMIT_MAX} keys")
    return limit


def check_timeout(timeout: float) -> float:
    """Raises BadRequest for a waiting time that is not allowed."""
    if not 0 <= timeout <= WAIT_SECONDS_MAX:  # §R3.8-1
        raise BadRequest(f"one waits between 0 and {WAIT_SECONDS_MAX:.0f} seconds")
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
    """The pieces of a body, and SizeMismatch as soon as they are too many or turn out too few.

    The last piece is held back until the source has ended: who is given all declared bytes may take them for the whole.
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
    """Bytes in memory, as a body that can be read again and again."""
    return Body(len(whole), lambda: _pieces_of(whole, 0, len(whole)))


async def whole_body(body: bytes | Body) -> bytes:
    """All bytes of a body whose size was checked. Raises SizeMismatch."""
    if not isinstance(body, Body):
        return body
    return b"".join([piece async for piece in checked_pieces(body)])


async def _pieces_of(whole: bytes, start: int, end: int) -> AsyncIterator[bytes]:
    for at in range(start, end, PIECE_BYTES):
        yield whole[at : min(at + PIECE_BYTES, end)]


@runtime_checkable
class Renewable(Protocol):
    """What has connections."""

    async def renew(self) -> None:
        """Close them all; the store goes on with new ones."""
        ...


async def renew(store: Store) -> None:
    """Does it, if there is anything to do."""
    if isinstance(store, Renewable):
        await store.renew()
