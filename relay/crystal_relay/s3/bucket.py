"""The five operations on a bucket. They block, within the client's time limits.

An SDK that retries a request whose answer was lost may get "412, it exists" for its own object. So every write has a random
number in the object's metadata, which is compared after a 412. Comparing bytes would not do: two writers may store the same.
"""

import base64
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Protocol

from crystal_relay.errors import BadReply, NotFound, RelayError, StoreDamaged, StoreUnavailable
from crystal_relay.limits import LIST_LIMIT_MAX
from crystal_relay.s3.address import S3Address
from crystal_relay.s3.client import Wire, make_client
from crystal_relay.s3.failures import answer_of, failure_types, relay_error
from crystal_relay.s3.settings import S3Settings

WRITE_METADATA = "crystal-write"
WRITE_BYTES = 16
"""Size of the random number that identifies a write."""

EMPTY_PAGES_MAX = 100
"""Consecutive empty pages after which a list fails."""
LISTS_MAX = 8
"""Times that a list is asked for before its disorder counts as the bucket's: some servers list an object twice while it is
being written."""
LIST_AGAIN_SECONDS = 0.05

Listed = tuple[list[tuple[str, int]], bool]
"""Keys with their sizes, and whether there may be more."""


def new_write() -> str:
    """A random number that identifies a write."""
    return secrets.token_hex(WRITE_BYTES)


class Written(Enum):
    """How a conditional write ended, if known."""

    STORED = "stored"
    TAKEN = "taken"
    CONFLICT = "conflict"
    """Concurrent writes of the key; nothing was stored."""
    UNSETTLED = "unsettled"
    """The same, but a try before that got no answer: it may still arrive."""


class UploadSource(Protocol):
    """The part of a file's interface that the SDK needs to send it."""

    def read(self, size: int = -1) -> bytes:
        """Read some or all of the rest."""
        ...

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to a position."""
        ...

    def tell(self) -> int:
        """The current position."""
        ...


@dataclass(frozen=True, slots=True)
class Content:
    """Content to store: bytes, or a file that is read from its beginning."""

    source: bytes | UploadSource
    size: int
    md5: bytes

    @classmethod
    def of(cls, whole: bytes) -> "Content":
        return cls(whole, len(whole), hashlib.md5(whole, usedforsecurity=False).digest())


class DownloadStream:
    """Bytes of an object as they come from the store. Blocks, for as long as the read time-out at the most."""

    def __init__(self, body: Any, length: int) -> None:
        self._body = body
        self._left = length
        self._failures = failure_types()
        self._lock = threading.Lock()

    def read(self, count: int) -> bytes:
        """`count` bytes, fewer at the end only. Raises StoreUnavailable when there are fewer than were announced."""
        with self._lock:
            return self._read(count)

    def close(self) -> None:
        """Close the connection, once a `read` in another thread has ended. Idempotent."""
        with self._lock:
            self._body.close()

    def _read(self, count: int) -> bytes:
        wanted = min(count, self._left)
        pieces: list[bytes] = []
        try:
            while wanted:
                piece: bytes = self._body.read(wanted)
                if not piece:
                    raise StoreUnavailable("the object store's answer ended early")
                pieces.append(piece)
                wanted -= len(piece)
                self._left -= len(piece)
            if not self._left:
                self._body.close()
        except self._failures as error:
            raise relay_error(error, "GetObject", (), write=False) from None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object, or a part of it: `length` bytes from `start` of `size`."""

    stream: DownloadStream
    size: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class StoredHead:
    """An object's size, and the number of the write that made it ("" for one that is not ours)."""

    size: int
    write: str


class Bucket:
    """A bucket. All calls block and are thread-safe. Keys are those of the port, not checked here."""

    def __init__(self, address: S3Address, settings: S3Settings, session: Any = None) -> None:
        """Takes some 100 ms. `session`: as `make_client` has it. Raises Unusable."""
        self.address = address
        self.wire = Wire()
        self.client = make_client(address, settings, self.wire, session)
        self._failures = failure_types()

    @property
    def last_status(self) -> int | None:
        """HTTP status of the last answer to the calling thread; None if there was none."""
        tries = self.wire.tries
        return tries[-1].status if tries else None

    def create(self, key: str, content: Content, write: str, *, always_ask: bool = True) -> Written:
        """Store under a key that is free, by a conditional write. `write`: from `new_write`, the same in each try.

        After a 412 the object is asked whose it is. Without `always_ask` only if the SDK has repeated the request:
        exact when no proxy in between repeats it too. Raises StoreUnavailable (the outcome is unknown), Busy, StoreFull.
        """
        try:
            self._put(key, content, write, IfNoneMatch="*")
        except _Answered as answered:
            if answered.status == 412:
                ask = always_ask or len(self.wire.tries) > 1
                return self._whose(key, write) if ask else Written.TAKEN
            if answered.status in (409, 429):
                # A try before this one may have been lost on its way back: it is asked for under the same number.
                if any(one.status not in (409, 429) for one in self.wire.tries):
                    return self._whose(key, write, free=Written.UNSETTLED)
                return Written.CONFLICT
            raise answered.error from None
        return Written.STORED

    def put(self, key: str, content: Content) -> None:
        """Store, in place of what is there. Raises StoreUnavailable (unknown), Busy, StoreFull."""
        try:
            self._put(key, content, new_write())
        except _Answered as answered:
            raise answered.error from None

    def get(self, key: str, start: int = 0, length: int | None = None) -> FoundObject | None:
        """The object or a part of it. None: the part begins at or beyond the end. Raises NotFound, StoreUnavailable."""
        ranged = start > 0 or length is not None
        asked: dict[str, Any] = {}
        if ranged:
            asked["Range"] = f"bytes={start}-" if length is None else f"bytes={start}-{start + length - 1}"
        try:
            with self._asking("GetObject"):
                answer = self.client.get_object(Bucket=self.address.bucket, Key=self._name(key), **asked)
        except _Answered as answered:
            if answered.status == 416:
                return None
            raise answered.found_error() from None
        return _found(answer, start if ranged else None, length)

    def head(self, key: str) -> StoredHead:
        """Raises NotFound, StoreUnavailable."""
        try:
            with self._asking("HeadObject"):
                answer = self.client.head_object(Bucket=self.address.bucket, Key=self._name(key))
        except _Answered as answered:
            raise answered.found_error() from None
        if not answer.get("ETag"):
            raise _bad_reply()
        metadata = {name.lower(): value for name, value in answer.get("Metadata", {}).items()}
        return StoredHead(_size(answer.get("ContentLength")), str(metadata.get(WRITE_METADATA, "")))

    def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listed:
        """Keys and sizes in order, and whether there may be more. Raises StoreUnavailable, StoreDamaged (out of order)."""
        for number in range(LISTS_MAX):
            if number:
                time.sleep(LIST_AGAIN_SECONDS)
            listed = self._listed(prefix, after, limit)
            if listed is not None:
                return listed
        raise StoreDamaged(
            "the object store's list is out of order",
            hint="This kind of bucket cannot be used: take one whose lists are in the order of names.",
        )

    def delete(self, key: str) -> None:
        """No error if there is none. Raises StoreUnavailable (unknown), Busy."""
        try:
            with self._asking("DeleteObject", write=True):
                answer = self.client.delete_object(Bucket=self.address.bucket, Key=self._name(key))
        except _Answered as answered:
            if not answered.is_missing:
                raise answered.error from None
            return
        if answer["ResponseMetadata"]["HTTPStatusCode"] != 204:
            raise _bad_reply()

    def close(self) -> None:
        """Close all connections."""
        self.client.close()

    def _listed(self, prefix: str, after: str, limit: int) -> Listed | None:
        """One try; None if what came is out of order, or not what was asked for."""
        asked: dict[str, Any] = {"StartAfter": self._name(after)} if after else {}
        answer = self._list(prefix, limit, asked)
        for _ in range(EMPTY_PAGES_MAX):
            if answer.get("Contents") or not answer.get("IsTruncated"):
                break
            # A store that steps over many deleted objects may do so: it says where to go on.
            answer = self._list(prefix, limit, {"ContinuationToken": answer.get("NextContinuationToken", "")})
        else:
            raise StoreUnavailable("the object store lists nothing and says that there is more")
        cut = len(self._name(""))
        entries: list[tuple[str, int]] = []
        last = after
        for entry in answer.get("Contents", ()):
            key = str(entry.get("Key", ""))[cut:]
            if not key.startswith(prefix) or key <= last:
                return None
            last = key
            entries.append((key, _size(entry.get("Size"))))
        if len(entries) > limit:
            raise BadReply("the object store lists more than it was asked for")
        return entries, bool(answer.get("IsTruncated"))

    def _list(self, prefix: str, limit: int, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            with self._asking("ListObjectsV2"):
                answer: dict[str, Any] = self.client.list_objects_v2(
                    Bucket=self.address.bucket, Prefix=self._name(prefix), MaxKeys=limit, **asked
                )
        except _Answered as answered:
            raise answered.error from None
        if "IsTruncated" not in answer:
            raise _bad_reply()
        return answer

    def _put(self, key: str, content: Content, write: str, **condition: str) -> None:
        if not isinstance(content.source, bytes):
            content.source.seek(0)
        with self._asking("PutObject", write=True):
            answer = self.client.put_object(
                Bucket=self.address.bucket,
                Key=self._name(key),
                Body=content.source,
                ContentMD5=base64.b64encode(content.md5).decode(),
                Metadata={WRITE_METADATA: write},
                **condition,
            )
        if not answer.get("ETag"):
            raise _bad_reply()

    def _whose(self, key: str, write: str, *, free: Written = Written.TAKEN) -> Written:
        """Whether what is at the key is of this write. `free`: what it means that nothing is there any more."""
        try:
            return Written.STORED if self.head(key).write == write else Written.TAKEN
        except NotFound:
            return free
        except RelayError as error:
            # It may well be ours: an error that says "nothing was stored" would be a lie.
            raise StoreUnavailable("whether the object was stored is unknown", hint=error.hint) from None

    def _name(self, key: str) -> str:
        return self.address.object_name(key)

    @contextmanager
    def _asking(self, operation: str, *, write: bool = False) -> Generator[None]:
        self.wire.begin()
        try:
            yield
        except self._failures as error:
            judge = partial(relay_error, error, operation, self.wire.tries, write=write)
            raise _Answered(error, operation, judge) from None


class _Answered(Exception):  # never leaves this module
    """A failed operation, not yet judged."""

    def __init__(self, error: BaseException, operation: str, judge: Callable[[], RelayError]) -> None:
        super().__init__(operation)
        answer = answer_of(error)
        self.status = answer.status
        self.is_missing = answer.status == 404 and answer.code != "NoSuchBucket"
        self._judge = judge

    @property
    def error(self) -> RelayError:
        return self._judge()

    def found_error(self) -> RelayError:
        """For an operation on an object that may not be there."""
        return NotFound("there is no such object") if self.is_missing else self.error


def _found(answer: dict[str, Any], start: int | None, wanted: int | None) -> FoundObject:
    """`start`: of the part that was asked for, `wanted` its length, None for up to the end. Raises BadReply."""
    body = answer["Body"]
    try:
        length = _size(answer.get("ContentLength"))
        if not answer.get("ETag"):
            raise _bad_reply()
        if start is None:
            return FoundObject(DownloadStream(body, length), length, 0, length)
        unit, _, rest = str(answer.get("ContentRange", "")).partition(" ")
        span, _, size = rest.partition("/")
        first, _, last = span.partition("-")
        given = [int(number) if number.isdecimal() else -1 for number in (first, last, size)]
        end = given[2] if wanted is None else min(given[2], start + wanted)
        if unit != "bytes" or given != [start, start + length - 1, given[2]] or start + length != end:
            raise BadReply("the object store gave another part than was asked for")
        return FoundObject(DownloadStream(body, length), given[2], start, length)
    except BaseException:
        body.close()
        raise


def _size(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise BadReply("the object store's answer has no size")
    return value


def _bad_reply() -> BadReply:
    """A web page from a portal or proxy must never pass for a success."""
    return BadReply(
        "the answer is not an object store's", hint="Check that --s3-endpoint points at an object store."
    )
