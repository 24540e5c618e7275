"""P11: nothing that a person wrote or named, and no private key, reaches the relay in the clear: in no object, key or request.

Texts, names and keys of the simulated vault are *planted*: whatever a device asks of the relay is searched for each of them,
keys also in hexadecimal and in base64. Store keys must be opaque: made of ids, numbers and keyed hashes alone.
"""

import re
from base64 import b64encode, urlsafe_b64encode

from crystal_crypto.hierarchy import GenerationKey, Root, VaultSecret
from crystal_crypto.identity import DeviceIdentity
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
from tests.sim.model import Violation

PLANTED_BYTES_MIN = 6
"""Shorter ones would be found in ciphertext by chance."""

_OPAQUE = re.compile(
    r"v/[0-9a-f]{32}/"
    r"(?:(?:devlog/|mirror/(?:\d{10}/)?|blob/|cursor/|conversations/(?:[0-9a-f]{32}\.(?:[0-9a-f]{16}/)?)?)"
    r"(?:\d{16}|[0-9a-f]{32}|[0-9a-f]{64}|z)?)?"
)


class Secrecy:
    """What was planted, and the search for it."""

    def __init__(self) -> None:
        self._planted: dict[bytes, str] = {}
        self.told: set[str] = set()
        """Keys that a lying relay has made up itself."""
        self.searched = 0
        """Bytes, of keys and bodies."""

    def plant(self, what: str, data: bytes) -> None:
        """Text or bytes as they are."""
        assert len(data) >= PLANTED_BYTES_MIN, f"{what} is too short to be told from chance"
        self._planted.setdefault(data, what)

    def plant_key(self, what: str, key: bytes) -> None:
        """Private bytes, in every form in which they might be written."""
        written = (key.hex(), key.hex().upper(), b64encode(key).decode(), urlsafe_b64encode(key).decode())
        for form in (key, *(text.rstrip("=").encode() for text in written)):
            self.plant(what, form)

    def plant_root(self, root: Root) -> None:
        self.plant_key("a root", root.to_bytes())
        self.plant_key("a root's signing key", root.admin.to_bytes())
        self.plant_key("a root's recovery key", root.recovery.to_bytes())

    def plant_identity(self, identity: DeviceIdentity) -> None:
        self.plant_key("a device's signing key", identity.signing.to_bytes())
        self.plant_key("a device's exchange key", identity.exchange.to_bytes())

    def plant_generation(self, key: GenerationKey) -> None:
        self.plant_key(f"the key of generation {key.number}", key.secret)

    def plant_secret(self, secret: VaultSecret) -> None:
        for key in (secret.to_bytes(), secret.state_key, secret.forget_key, secret.blob_name_key):
            self.plant_key("the vault's secret", key)

    def search(self, where: str, data: bytes) -> None:
        """Raises Violation if anything planted stands in ``data``."""
        self.searched += len(data)
        for planted, what in self._planted.items():
            if planted in data:
                raise Violation(f"P11: {what} is in the clear in {where}")

    def check_key(self, key: str) -> None:
        """Raises Violation for a store key that is not opaque."""
        if key not in self.told and not _OPAQUE.fullmatch(key):
            raise Violation(f"P11: the key {key} says more than it must")

    def check(self, request: Request) -> None:
        """Searches what the relay is asked. Raises Violation."""
        match request:
            case Get(key) | GetBlob(key) | GetPart(key, _, _) | List(key, _, _) | Poll(key, _):
                self.check_key(key)
            case GetMany(keys) | GetBlobs(keys, _) | Has(keys):
                for key in keys:
                    self.check_key(key)
            case Put(key, body) | PutNew(key, body) | PutBlob(key, body):
                self.check_key(key)
                self.search("a key", key.encode())
                self.search(f"the object {key}", body)
            case PutBlobs(blobs):
                for key, body in blobs:
                    self.check(PutBlob(key, body))
            case Condemn(keys, prefix, through):
                for key in (*keys, *filter(None, (prefix, through))):
                    self.check_key(key)
            case Embed() | Progress():
                pass
