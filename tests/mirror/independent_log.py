"""A second reader of the device log, written from docs/protocol.md alone: the verdict on each slot, and the keys of a root.

It stands on the second reader of the byte formats and on a MessagePack decoder, and takes nothing from the project.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from tests.crypto.independent_reader import (
    Refused,
    SealedEntry,
    ed25519_public,
    hkdf,
    label,
    must,
    open_entry,
    parse_entry,
    read_bundle,
    sha256,
    verify_entry,
)

ROOT = bytes(16)
NOBODY = bytes(16)


def _binary(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, bytes) and least <= len(value) <= most


def _number(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _pairs(first: Callable[[Any], bool], second: Callable[[Any], bool], most: int) -> Callable[[Any], bool]:
    def are(value: Any) -> bool:
        is_list = isinstance(value, list)
        pairs = cast("list[Any]", value if is_list else [None])
        return len(pairs) <= most and all(is_pair(each) for each in pairs)

    def is_pair(value: Any) -> bool:
        is_list = isinstance(value, list)
        pair = cast("list[Any]", value if is_list else [])
        return len(pair) == 2 and first(pair[0]) and second(pair[1])

    return are


_ID, _KEY, _BUNDLE = _binary(16, 16), _binary(32, 32), _binary(32, 1024)
_GENERATION = _number(1, 2**32 - 1)
_BUNDLES = _pairs(_ID, _BUNDLE, 1000)
_CUTOFFS = _pairs(_binary(8, 8), _number(0, 2**53), 4096)
FIELDS: dict[str, list[Callable[[Any], bool]]] = {
    "root": [_KEY, _KEY, _ID, _GENERATION, _BUNDLE],
    "add": [_ID, _KEY, _KEY, _flag, _flag, _GENERATION, _BUNDLE],
    "revoke": [_ID, _CUTOFFS, _GENERATION, _BUNDLE, _BUNDLES],
    "generation": [_GENERATION, _BUNDLE, _BUNDLES],
    "lead": [_number(1, 2**53), _ID, _ID],
    "grant": [_ID],
    "name": [_ID],
}


@dataclass
class Device:
    signing: bytes
    exchange: bytes
    grant: bool
    revoked: bool = False
    cutoffs: dict[bytes, int] = field(default_factory=dict[bytes, int])


@dataclass
class Log:
    """The log as it was judged so far. ``judge`` takes the next slot."""

    vault: bytes
    slot: int = 0
    head: bytes = bytes(32)
    generation: int = 0
    root: list[Any] | None = None
    admins: set[bytes] = field(default_factory=set[bytes])
    devices: dict[bytes, Device] = field(default_factory=dict[bytes, Device])
    leads: list[bytes] = field(default_factory=list[bytes])
    began: dict[int, SealedEntry] = field(default_factory=dict[int, SealedEntry])
    sealed: dict[bytes, list[tuple[int, bytes, bytes]]] = field(
        default_factory=dict[bytes, list[tuple[int, bytes, bytes]]]
    )

    def judge(self, data: bytes) -> bool:
        """Whether the slot is valid; if so it is taken in."""
        self.slot += 1
        try:
            entry = parse_entry(data)
            record = self._rules(entry)
        except (Refused, msgspec.DecodeError, UnicodeDecodeError):
            return False
        self._take(entry, record)
        return True

    def _rules(self, entry: SealedEntry) -> list[Any]:
        header = entry.field
        must(header.number(6, 1) == 1 and header.number(7, 1) == 1 and header.at(16, 16) == self.vault)
        must(header.number(64, 8) == self.slot - 1)
        must(header.at(120, 32) == header.at(88, 32) == self.head)
        must(header.at(48, 8) == bytes(8))
        decoded: Any = msgspec.msgpack.decode(entry.public)
        is_list = isinstance(decoded, list)
        record = cast("list[Any]", decoded if is_list else [])
        must(record != [] and isinstance(record[0], str))
        must(record[0] in FIELDS)
        fields = FIELDS[record[0]]
        must(len(record) == len(fields) + 1)
        must(all(fits(value) for fits, value in zip(fields, record[1:], strict=True)))
        begins = record[0] in ("revoke", "generation") or self.root is None
        generation = self.generation + begins
        must(header.number(12, 4) == generation)
        key = self._signer(header.at(32, 16), record)
        must(self._said_rightly(record, generation))
        verify_entry(entry, key)
        return record

    def _signer(self, sender: bytes, record: list[Any]) -> bytes:
        if self.root is None:
            must(record[0] == "root" and sender == ROOT)
            must(sha256(label("crystal/v2/vault") + record[1])[:16] == self.vault)
            return bytes(record[1])
        if sender == ROOT:
            return bytes(self.root[1])
        must(self._active(sender) and record[0] != "root")
        leads = bool(self.leads) and self.leads[-1] == sender
        of_itself = (record[0] == "lead" and record[2] == sender and self.devices[sender].grant) or (
            record[0] == "name" and record[1] == sender
        )
        must(leads or of_itself)
        return self.devices[sender].signing

    def _active(self, device: bytes) -> bool:
        return device in self.devices and not self.devices[device].revoked

    def active(self) -> list[bytes]:
        return sorted(device for device in self.devices if self._active(device))

    def _said_rightly(self, record: list[Any], generation: int) -> bool:
        match record:
            case ["root", admin, _, _, said, _]:
                ed25519_public(admin)
                return said == generation and admin not in self.admins
            case ["add", device, signing, exchange, _, _, said, _]:
                ed25519_public(signing)
                taken = {key for other in self.devices.values() for key in (other.signing, other.exchange)}
                return (
                    device not in self.devices
                    and device != ROOT
                    and said == generation
                    and len(self.devices) < 1000
                    and signing not in taken
                    and exchange not in taken
                    and signing != exchange
                )
            case ["revoke", device, cutoffs, said, _, bundles]:
                incarnations = [incarnation for incarnation, _ in cutoffs]
                others = [other for other in self.active() if other != device]
                cores = [core for core in self.leads if core != NOBODY]
                return (
                    self._active(device)
                    and cores[-1:] != [device]
                    and said == generation
                    and incarnations == sorted(set(incarnations))
                    and [recipient for recipient, _ in bundles] == others
                )
            case ["generation", said, _, bundles]:
                return said == generation and [recipient for recipient, _ in bundles] == self.active()
            case ["lead", epoch, device, _]:
                freezes = device == NOBODY and self.leads[-1:] not in ([], [NOBODY])
                return (freezes or self._active(device)) and epoch == len(self.leads) + 1
            case ["grant", device]:
                return self._active(device) and not self.devices[device].grant
            case ["name", device]:
                return self._active(device)
            case _:
                raise AssertionError("a record that the document does not know")

    def _take(self, entry: SealedEntry, record: list[Any]) -> None:
        before = self.head
        must_begin = self.root is None or record[0] in ("revoke", "generation")
        if must_begin:
            self.generation += 1
            self.began[self.generation] = entry
        match record:
            case ["root", admin, _, _, said, bundle]:
                self.root = record
                self.admins.add(admin)
                self.sealed[ROOT] = [(said, before, bundle)]
            case ["add", device, signing, exchange, grant, _, said, bundle]:
                self.devices[device] = Device(signing, exchange, grant)
                self.sealed[device] = [(said, before, bundle)]
            case ["revoke", device, cutoffs, said, recovery, bundles]:
                self.devices[device].revoked = True
                self.devices[device].cutoffs = dict(cutoffs)
                self._new_keys(said, before, recovery, bundles)
            case ["generation", said, recovery, bundles]:
                self._new_keys(said, before, recovery, bundles)
            case ["lead", _, device, _]:
                self.leads.append(device)
            case ["grant", device]:
                self.devices[device].grant = True
            case _:
                pass
        self.head = entry.hash

    def _new_keys(self, said: int, before: bytes, recovery: bytes, bundles: list[list[bytes]]) -> None:
        self.sealed[ROOT].append((said, before, recovery))
        for device, bundle in bundles:
            self.sealed[device].append((said, before, bundle))

    def keys(self, recipient: bytes, private: bytes) -> tuple[dict[int, bytes], bytes]:
        """Every generation key that leads from the bundles of a recipient (zero: the recovery key), and the vault's secret."""
        keys: dict[int, bytes] = {}
        first: bytes | None = None
        for said, head, bundle in self.sealed[recipient]:
            try:
                key, secret = read_bundle(
                    bundle, private=private, vault=self.vault, recipient=recipient, log_head=head, g=said
                )
            except Refused:
                continue
            first = first or secret
            if secret == first and self._opens(said, key):
                keys[said] = key
        must(first is not None, "wrong key")
        for said in range(self.generation, 1, -1):
            if said not in keys:
                continue
            frames = open_entry(self.began[said], said, keys[said])
            older = frames[1] if len(frames) > 1 else b""
            for place in range(len(older) // 32):
                before, key = said - 1 - place, older[32 * place : 32 * place + 32]
                if before >= 1 and before not in keys and self._opens(before, key):
                    keys[before] = key
        assert first is not None
        return keys, first

    def _opens(self, generation: int, key: bytes) -> bool:
        try:
            return bool(open_entry(self.began[generation], generation, key))
        except Refused:
            return False


def recovery_key(root: bytes) -> bytes:
    return hkdf(root, b"", label("crystal/v2/root/recovery"), 32)
