"""P13: whoever had every key up to a generation, and has the whole relay and all that is asked of it, cannot tell the names
that are made from then on from random ones, nor lengths from the padded classes of the document.

The guesser knows each content that anybody ever stored, which no thief does: it tries them all, with each key that an ex-device
of that generation kept. A name that was stored before the generation began is no news to it.
"""

import hmac
from collections.abc import Iterable, Iterator
from hashlib import sha256

from crystal_crypto.blob import parse_blob_header
from crystal_crypto.entry import parse
from crystal_crypto.errors import CryptoError
from crystal_crypto.hierarchy import GenerationKey, VaultSecret
from crystal_crypto.limits import BLOB_CHUNK_BYTES, BLOB_HEADER_BYTES, MAC_BYTES, TAG_BYTES
from crystal_crypto.padding import padded_length
from crystal_mirror.requests import (
    Get,
    GetBlob,
    GetBlobs,
    GetMany,
    Has,
    Put,
    PutBlob,
    PutBlobs,
    PutNew,
    Request,
)
from tests.sim.model import Violation
from tests.sim.outsiders import Generations
from tests.support.blobs import whatever_it_holds

TURNS = 4
_BLOB = "/blob/"


class Guesser:
    """Follows what devices ask of the relay. ``tried`` counts the names that it compared its guesses with."""

    def __init__(self, vault: bytes, secret: VaultSecret, generations: Generations) -> None:
        self.tried = 0
        self._vault = vault
        self._secret = secret
        self._generations = generations
        self._contents: list[bytes] = []
        self._first: dict[bytes, int] = {}
        """The generation in which a name was stored first, as its maker knew it."""
        self._news: dict[int, set[bytes]] = {}
        """By generation, the names that were asked for or stored in it and had not been stored before."""
        self._guesses: dict[int, set[bytes]] = {}
        """Of generation n's guesser: what it comes to with the keys before n."""
        self._guessed: dict[int, int] = {}

    def take_as_known(self, keys: Iterable[str]) -> None:
        """Names that stand on the relay already."""
        for key in keys:
            if _BLOB in key:
                self._first.setdefault(_name(key), 0)

    def learn(self, content_hash: bytes) -> None:
        """A content that it will guess."""
        if content_hash not in self._contents:
            self._contents.append(content_hash)

    def check(self, who: str, request: Request, generation: int) -> None:
        """Looks at a request of a device that knew that generation when it made it. Raises Violation."""
        match request:
            case PutBlob(key, body):
                self._check_length(who, key, body)
                self._check_content(who, key, body, generation)
                self._check_name(who, _name(key), generation)
                self._first.setdefault(_name(key), generation)
            case Put(key, body) | PutNew(key, body):
                _check_entry(who, key, body)
            case Get(key) | GetBlob(key):
                self._check_names(who, (key,), generation)
            case PutBlobs(blobs):
                for key, body in blobs:
                    self.check(who, PutBlob(key, body), generation)
            case GetMany(keys) | GetBlobs(keys, _) | Has(keys):
                self._check_names(who, keys, generation)
            case _:
                pass

    def _check_content(self, who: str, key: str, body: bytes, generation: int) -> None:
        header = parse_blob_header(body)
        sealed = self._generations.number(header.generation)
        if sealed is None or header.generation < generation:
            raise Violation(f"P13: {who} put a blob that was sealed for those who are out by now")
        content = whatever_it_holds(body, name=_name(key), vault=self._vault, key=sealed)
        self.learn(sha256(content).digest())
        for known, names in self._news.items():
            if not names.isdisjoint(self._guessed_before(known)):
                raise Violation(f"P13: who is out since generation {known} can tell what {who} has asked for")

    def _check_length(self, who: str, key: str, body: bytes) -> None:
        payload = parse_blob_header(body).payload_bytes
        chunks = -(-payload // BLOB_CHUNK_BYTES)
        if len(body) != BLOB_HEADER_BYTES + MAC_BYTES + padded_length(payload) + chunks * TAG_BYTES:
            raise Violation(f"P13: the length of {key}, put by {who}, is of no padded class")

    def _check_names(self, who: str, keys: Iterable[str], generation: int) -> None:
        for key in keys:
            if _BLOB in key:
                self._check_name(who, _name(key), generation)

    def _check_name(self, who: str, name: bytes, generation: int) -> None:
        if generation == 1 or self._first.get(name, generation) < generation:
            return
        self.tried += 1
        self._news.setdefault(generation, set()).add(name)
        if name in self._guessed_before(generation):
            raise Violation(
                f"P13: {who} named a blob so that who is out since generation {generation} knows it"
            )

    def _guessed_before(self, generation: int) -> set[bytes]:
        guesses = self._guesses.setdefault(generation, set())
        done = self._guessed.get(generation, 0)
        for content in self._contents[done:]:
            guesses.update(self._tries(content, generation))
        self._guessed[generation] = len(self._contents)
        return guesses

    def _tries(self, content: bytes, generation: int) -> Iterator[bytes]:
        """Every name that the keys of before give to a content, by the rules of today and by simpler ones."""
        secret = self._secret
        held = [key for n in range(1, generation) if (key := self._generations.number(n)) is not None]
        bare = [secret.to_bytes(), secret.state_key, secret.forget_key, *(key.secret for key in held)]
        for turn in range(TURNS):
            named = content + (bytes([turn]) if turn else b"")
            yield named[:32]
            yield sha256(named).digest()
            yield secret.blob_name(content, turn)
            yield from (hmac.digest(key, named, "sha256") for key in bare)
            yield from (self._by(key, content, turn) for key in held)

    def _by(self, key: GenerationKey, content: bytes, turn: int) -> bytes:
        return key.blob_name(self._vault, content, turn)


def _check_entry(who: str, key: str, body: bytes) -> None:
    try:
        parse(body)  # which compares the length with the padded classes
    except CryptoError as error:
        raise Violation(f"P13: {who} put {key}, which is no entry of a padded length: {error}") from error


def _name(key: str) -> bytes:
    return bytes.fromhex(key.rpartition("/")[2])
