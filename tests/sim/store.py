"""The simulated relay: objects in a dictionary, weather, and lies.

Honest and calm it keeps the store's contract. *Weather* is what any honest relay and network do: requests that fail before
or after their effect, a success whose reply is lost, a write delivered again much later, short pages, a deletion that was
asked for and is carried out much later, twice, or never. A *lie* (`lies.py`) is put between the objects and who asks for them.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from random import Random
from typing import Any, Protocol

from crystal_mirror.requests import (
    Condemn,
    Embed,
    Get,
    GetBlob,
    GetBlobs,
    GetMany,
    GetPart,
    Has,
    List,
    Listing,
    Poll,
    Progress,
    Put,
    PutBlob,
    PutBlobs,
    PutNew,
    Request,
    StoreFailure,
)
from crystal_node.device.runner import store_failure
from crystal_relay.errors import StoreUnavailable, TooManyRequests
from tests.sim.embedding import MODEL, embed
from tests.sim.secrecy import Secrecy


@dataclass
class Weather:
    """Chances between 0 and 1, per request. `page_max` bounds a listing's page (drawn anew for each)."""

    fails_before: float = 0.0
    fails_after: float = 0.0
    repeats_late: float = 0.0
    page_max: int = 1000
    throttles: float = 0.0
    """That a device is asked to wait (429), for the next up to THROTTLED_MAX requests."""
    conflicts: float = 0.0
    """That a create-only write meets another one under way (409), and stores nothing."""
    sweeps_late: float = 0.0
    """That a deletion is put off; CONDEMNED_NEVER of those put off are forgotten."""


CALM = Weather()
STORM = Weather(fails_before=0.08, fails_after=0.08, repeats_late=0.15, page_max=3, sweeps_late=0.7)
BUSY = Weather(throttles=0.1, conflicts=0.15)
THROTTLED_MAX = 6
CONDEMNED_NEVER = 0.15
CONDEMNED_TWICE = 0.25
"""That a deletion which was carried out is carried out once more, later."""
POLLS_FORGOTTEN = 0.05
"""That a poll's token is not known any more, as after a restart of the relay."""
SWEEPS = 0.04
"""That one of the deletions put off is carried out, before any request."""


class Lie(Protocol):
    """What a relay may do with a request. None from `has`, `listing`, `put_new` or `condemn`: as an honest one would."""

    @property
    def name(self) -> str: ...

    @property
    def harms(self) -> bool: ...

    def get(self, store: "SimStore", device: str, key: str) -> bytes | None: ...

    def listing(self, store: "SimStore", device: str, request: List) -> Listing | None: ...

    def put_new(self, store: "SimStore", device: str, key: str, body: bytes) -> bool | None: ...

    def has(self, store: "SimStore", device: str, key: str) -> bool | None: ...

    def condemn(self, store: "SimStore", request: Condemn) -> frozenset[str] | None:
        """The keys that are gone at once instead of those that were named."""
        ...


@dataclass(frozen=True)
class Rot:
    """One object with a flipped bit, until something is written in its place. ``seen_by`` None: everybody sees it so."""

    body: bytes
    """The very bytes that were stored."""
    shown: bytes
    seen_by: frozenset[str] | None


@dataclass(frozen=True)
class _Late:
    key: str
    body: bytes
    overwrites: bool


class SimStore:
    """`draw` decides about the weather alone. `counts` says what was done to whom, for the summary."""

    def __init__(self, draw: Random) -> None:
        self.objects: dict[str, bytes] = {}
        self.acknowledged: set[bytes] = set()
        """Hashes of all bytes whose write was ever called durable."""
        self.weather = CALM
        self.lie: Lie | None = None
        self.counts: Counter[str] = Counter()
        self.joining: set[str] = set()
        """Devices that add an entry to the device log just now: they are not lied to about it. What such a lie does cannot be
        healed: whoever joins at a wrong head has joined nothing. It is named, and the person pairs again."""
        self.watch: Callable[[str, bytes], None] = lambda _device, _body: None
        """Is told of every write, with who asks for it, before anything becomes of it."""
        self.asked: Callable[[str, Request], None] = lambda _device, _request: None
        """Is told of every request that reaches the relay, with who makes it."""
        self.secrecy: Secrecy | None = None
        """Looks at every request that reaches the relay."""
        self.models: dict[str, str] = {}
        """The embedding model that a device has, where it is another one."""
        self.refused: set[str] = set()
        """Devices whose token counts for nothing any more."""
        self.hidden_from: dict[str, str] = {}
        """To some devices the device log ends before this key: an ex-device that goes on as if it had heard of nothing."""
        self._draw = draw
        self._late: list[_Late] = []
        self._condemned: list[Condemn] = []
        """Deletions that were asked for and put off."""
        self.rot: dict[str, Rot] = {}
        """What is damaged where it is stored."""
        self._throttled: Counter[str] = Counter()
        """How many requests of a device are refused yet."""
        self.swept: Callable[[frozenset[str]], None] = lambda _keys: None
        """Is told of every deletion that was asked for, once it was carried out."""

    def perform(self, device: str, request: Request) -> Any:
        """Answers a request. Raises StoreFailure when the device is told that it failed, whether or not it did."""
        if isinstance(request, Progress):
            return None
        self.counts["requests"] += 1
        weather = self.weather
        self._deliver_late(weather.repeats_late)
        if self._condemned and self._draw.random() < SWEEPS:
            self._sweep(self._condemned.pop(self._draw.randrange(len(self._condemned))))
        if isinstance(request, Embed):
            return [embed(text, self.models.get(device, MODEL)) for text in request.texts]
        if self._draw.random() < weather.fails_before:
            self.counts["failed before"] += 1
            raise StoreFailure("the simulated relay answered 503")
        self._refuse(device, request)
        if device in self.refused:
            raise StoreFailure("the simulated relay answered 401")
        if self.secrecy is not None:
            self.secrecy.check(request)
        self.asked(device, request)
        if isinstance(request, PutNew | Put | PutBlob):
            self.watch(device, request.body)
        if isinstance(request, PutBlobs):
            for _, body in request.blobs:
                self.watch(device, body)
        reply = self._answer(device, request)
        if self._draw.random() < weather.fails_after:
            self.counts["reply lost"] += 1
            raise StoreFailure("the simulated relay's reply was lost")
        return reply

    def _refuse(self, device: str, request: Request) -> None:
        """Raises what a device makes of 429 and 409: nothing was done."""
        weather = self.weather
        if weather.throttles and not self._throttled[device] and self._draw.random() < weather.throttles:
            self._throttled[device] = self._draw.randint(1, THROTTLED_MAX)
        if self._throttled[device]:
            self._throttled[device] -= 1
            self.counts["throttled"] += 1
            throttled = TooManyRequests("the simulated relay answered 429")
            raise store_failure(throttled) from throttled
        writes = isinstance(request, PutNew | PutBlob | PutBlobs)
        if weather.conflicts and writes and self._draw.random() < weather.conflicts:
            self.counts["conflict"] += 1
            conflict = StoreUnavailable("the simulated bucket answered 409")
            raise store_failure(conflict) from conflict

    def _answer(self, device: str, request: Request) -> Any:
        match request:
            case Get(key) | GetBlob(key):
                return self._get(device, key)
            case GetPart(key, start, length):
                whole = self._get(device, key)
                return None if whole is None else whole[start : start + length]
            case Has(keys):
                return [self._has(device, key) for key in keys]
            case GetMany(keys) | GetBlobs(keys, _):
                return [self._get(device, key) for key in keys]
            case PutNew(key, body) | PutBlob(key, body):
                return self._put_new(device, key, body)
            case PutBlobs(blobs):
                return self._put_blobs(device, blobs)
            case Put(key, body):
                self.objects[key] = body
                self._maybe_late(key, body, overwrites=True)
                return None
            case List():
                told = self.lie.listing(self, device, request) if self.lie else None
                if told is not None and self.secrecy is not None:
                    self.secrecy.told.update(told.keys)
                return told if told is not None else self.honest_listing(request)
            case Poll(prefix, token):
                return self._poll(prefix, token)
            case Condemn():
                return self._condemn(request)
            case Embed() | Progress():
                raise AssertionError("no business of the store")

    def _put_blobs(self, device: str, blobs: tuple[tuple[str, bytes], ...]) -> list[bool]:
        """They are put in any order, and the line may break between any two of them."""
        made: dict[str, bool] = {}
        order = self._draw.sample(blobs, len(blobs)) if self.weather.fails_after else blobs
        for key, body in order:
            if made and self.weather.fails_after and self._draw.random() < self.weather.fails_after:
                self.counts["reply lost"] += 1
                raise StoreFailure("the simulated relay answered for some of the blobs only")
            made[key] = self._put_new(device, key, body)
        return [made[key] for key, _ in blobs]

    def honest_listing(self, request: List) -> Listing:
        limit = max(1, min(request.limit, self._draw.randint(1, self.weather.page_max)))
        found = sorted(key for key in self.objects if key.startswith(request.prefix) and key > request.after)
        return Listing(tuple(found[:limit]), len(found) > limit)

    def _poll(self, prefix: str, token: str) -> str:
        """May say that something was written though nothing was: a relay that was restarted knows no token."""
        under = sorted((key, body) for key, body in self.objects.items() if key.startswith(prefix))
        fresh = sha256(repr(under).encode()).hexdigest()
        forgot = token == fresh and self._draw.random() < POLLS_FORGOTTEN
        return f"{fresh}." if forgot else fresh

    def _get(self, device: str, key: str) -> bytes | None:
        first_hidden = self.hidden_from.get(device)
        if first_hidden is not None and "/devlog/" in key and key >= first_hidden:
            return None
        if self.lie is None or (device in self.joining and "/devlog/" in key):
            return self.stored(device, key)
        return self.lie.get(self, device, key)

    def stored(self, device: str, key: str) -> bytes | None:
        """What an honest relay reads from its disk for a device."""
        body, rot = self.objects.get(key), self.rot.get(key)
        hit = rot is not None and body is rot.body and (rot.seen_by is None or device in rot.seen_by)
        return rot.shown if rot is not None and hit else body

    def _has(self, device: str, key: str) -> bool:
        told = self.lie.has(self, device, key) if self.lie else None
        return told if told is not None else self._get(device, key) is not None

    def _condemn(self, request: Condemn) -> None:
        self.counts["condemned"] += 1
        told = self.lie.condemn(self, request) if self.lie else None
        if told is not None:
            for key in told:
                self.objects.pop(key, None)
        elif self._draw.random() >= self.weather.sweeps_late:
            self._sweep(request)
        elif self._draw.random() >= CONDEMNED_NEVER:
            self._condemned.append(request)

    def _sweep(self, request: Condemn) -> None:
        """Deletes what was named, as it stands now."""
        if self.weather.sweeps_late and self._draw.random() < CONDEMNED_TWICE:
            self._condemned.append(request)
        self._delete(self.named(request))

    def _delete(self, keys: frozenset[str]) -> None:
        gone = frozenset(keys & self.objects.keys())
        for key in gone:
            del self.objects[key]
        self.counts["swept"] += len(gone)
        if gone:
            self.swept(gone)

    def named(self, request: Condemn) -> frozenset[str]:
        """The keys that stand here now and that the request names."""
        named = self.objects.keys() & set(request.keys)
        if request.prefix:
            named |= {k for k in self.objects if k.startswith(request.prefix) and k <= request.through}
        return frozenset(named)

    def _put_new(self, device: str, key: str, body: bytes) -> bool:
        told = self.lie.put_new(self, device, key, body) if self.lie else None
        if told is not None:
            if told:
                self.acknowledged.add(sha256(body).digest())
            return told
        self._maybe_late(key, body, overwrites=False)
        if key in self.objects:
            return False
        self.objects[key] = body
        self.acknowledged.add(sha256(body).digest())
        return True

    def _maybe_late(self, key: str, body: bytes, *, overwrites: bool) -> None:
        if self._draw.random() < self.weather.repeats_late:
            self._late.append(_Late(key, body, overwrites))

    def _deliver_late(self, chance: float) -> None:
        """A write that the network kept back arrives once more. Create-only does nothing then, unless the key is gone."""
        if self._late and self._draw.random() < chance:
            late = self._late.pop(self._draw.randrange(len(self._late)))
            self.counts["late repeat"] += 1
            if late.overwrites or late.key not in self.objects:
                self.objects[late.key] = late.body

    def calm_down(self) -> None:
        """Fair weather, no lies, nothing under way any more: what was to be deleted is. What only some saw damaged, all do now,
        or nobody."""
        self.weather, self.lie = CALM, None
        self._throttled.clear()
        for key, rot in sorted(self.rot.items()):
            if rot.seen_by is not None and self._draw.random() < 0.5:
                del self.rot[key]
            else:
                self.rot[key] = replace(rot, seen_by=None)
        self._late.clear()
        while self._condemned:
            self._sweep(self._condemned.pop(0))

    def keys(self, channel: str) -> list[str]:
        """The keys of one channel, in order."""
        return sorted(key for key in self.objects if f"/{channel}/" in key)
