"""A store of plain objects for flows, and deterministic randomness: enough to test one flow at a time."""

import struct
from collections.abc import Callable, Generator
from hashlib import sha256
from typing import Any, TypeVar

from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.records import Details
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.reembedding import begin_reembedding, embed_some
from crystal_mirror.requests import (
    Condemn,
    Embed,
    Flow,
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
)

T = TypeVar("T")


def seeded(seed: str) -> Callable[[int], bytes]:
    """Unpredictable to the code, the same for the same seed."""
    count = 0

    def draw(size: int) -> bytes:
        nonlocal count
        count += 1
        data = b""
        while len(data) < size:
            data += sha256(f"{seed}/{count}/{len(data)}".encode()).digest()
        return data[:size]

    return draw


def vector(text: str) -> bytes:
    """A made-up embedding: the same for the same text."""
    return struct.pack("<384e", *((byte - 127.5) / 2500 for byte in sha256(text.encode()).digest() * 12))


class Objects(dict[str, bytes]):
    """A store that does what the contract says and nothing else."""

    def answer(self, request: Request) -> Any:
        match request:
            case Get(key):
                return self.get(key)
            case GetBlob(key):
                return self.get(key)
            case GetBlobs(keys):
                return [self.get(key) for key in keys]
            case PutBlobs(blobs):
                return [self.setdefault(key, body) is body for key, body in blobs]
            case GetPart(key, start, length):
                whole = self.get(key)
                return None if whole is None else whole[start : start + length]
            case GetMany(keys):
                return [self.get(key) for key in keys]
            case Has(keys):
                return [key in self for key in keys]
            case PutNew(key, body) | PutBlob(key, body):
                return self.setdefault(key, body) is body
            case Condemn(keys, prefix, through):
                named = [key for key in self if prefix and key.startswith(prefix) and key <= through]
                for key in (*keys, *named):
                    self.pop(key, None)
                return None
            case Progress():
                return None
            case Poll(prefix):
                under = sorted((key, body) for key, body in self.items() if key.startswith(prefix))
                return sha256(repr(under).encode()).hexdigest()
            case Put(key, body):
                self[key] = body
                return None
            case List(prefix, after, limit):
                found = sorted(key for key in self if key.startswith(prefix) and key > after)
                return Listing(tuple(found[:limit]), len(found) > limit)
            case Embed(texts):
                return [[vector(text)] for text in texts]

    def run(self, flow: Generator[Request, Any, T]) -> T:
        """Drives a flow to its end."""
        return driven(flow, self.answer)


def driven(flow: Generator[Request, Any, T], answer: Callable[[Request], Any]) -> T:
    """What a flow comes to, when each of its requests is answered so."""
    reply: Any = None
    while True:
        try:
            request = flow.send(reply)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        reply = answer(request)


def new_root(seed: str = "root") -> Root:
    return Root.from_bytes(seeded(seed)(32))


def new_device(seed: str) -> DeviceIdentity:
    return DeviceIdentity.generate(seeded(seed))


DETAILS = Details(name="laptop", system="Linux", at=0)


def reembed(member: Member, model: str) -> Flow[int]:
    """Embeds what has no vectors until nothing is left. Returns the number of chunks embedded."""
    yield from begin_reembedding(member, model)
    done = 0
    while step := (yield from embed_some(member, model)):
        done += step.texts
    return done
