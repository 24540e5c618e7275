"""The trace: what a run says of each step, without ciphertext, and the hash that names the run (P12)."""

import re
from collections.abc import Sequence
from hashlib import sha256

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
    Poll,
    Progress,
    Put,
    PutBlob,
    PutBlobs,
    PutNew,
    Request,
)

_BLOB_NAME = re.compile("/blob/[0-9a-f]{64}")


def hash_of(trace: Sequence[str]) -> str:
    return sha256("\n".join(trace).encode()).hexdigest()[:16]


def describe(request: Request | None) -> str:
    """A request without its ciphertext: its kind, key and size. A blob's name stands for its content, which is ciphertext in a
    pack: it is left out."""
    return _BLOB_NAME.sub("/blob/", _described(request))


def _described(request: Request | None) -> str:
    match request:
        case Get(key) | GetBlob(key) | GetPart(key, _, _):
            return f"get {key}"
        case GetMany(keys) | GetBlobs(keys, _):
            return f"get {len(keys)} from {keys[:1]}"
        case PutBlobs(blobs):
            return f"put {[(key, len(body)) for key, body in blobs]}"
        case Has(keys):
            return f"has {len(keys)} from {keys[:1]}"
        case PutNew(key, body) | Put(key, body) | PutBlob(key, body):
            return f"put {key} {len(body)}"
        case Condemn(keys, prefix, through):
            return f"condemn {len(keys)} from {keys[:1]}, {prefix} through {through}"
        case Progress(what, done, total):
            return f"progress of {what}: {done} of {total}"
        case Poll(prefix, _):
            return f"poll {prefix}"
        case List(prefix, after, _):
            return f"list {prefix} after {after}"
        case Embed(texts):
            return f"embed {len(texts)}"
        case None:
            return "nothing"
