"""All keys of a simulated vault, who was put out of it, and what those must not be able to do (P9).

The checks know more than any device: the device log as far as anybody has verified it, and every generation's key. An object
that is put to the relay by a device which knows of a revocation is tried with every key that the revoked device can come by.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256

from crystal_crypto.entry import Entry, parse
from crystal_crypto.errors import CryptoError
from crystal_crypto.hierarchy import GenerationKey
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.records import RevokeRecord
from crystal_mirror.errors import NotAMember
from crystal_mirror.membership.member import Member, load_log
from tests.sim.model import Violation


class Generations:
    """The key of every generation that any device ever had in force."""

    def __init__(self, first: GenerationKey) -> None:
        self._keys = {first.number: first}

    def learn(self, member: Member) -> list[GenerationKey]:
        """Takes over what a device has; returns what is new. Raises Violation at two keys of one generation."""
        new: list[GenerationKey] = []
        for number in range(1, member.log.generation + 1):
            key = member.key_for(number) if number not in self._keys else None
            if key is not None:
                self._keys[number] = key
                new.append(key)
        number = member.log.generation
        key = member.key_for(number)
        if key is not None and key.secret != self._keys[number].secret:
            raise Violation(f"P5: there are two keys of generation {number}")
        return new

    def number(self, generation: int) -> GenerationKey | None:
        return self._keys.get(generation)

    def of(self, entry: Entry) -> GenerationKey:
        """Raises Violation for an entry of a generation that no device has."""
        key = self._keys.get(entry.header.generation)
        if key is None:
            raise Violation(f"P10: nobody has the key of generation {entry.header.generation}")
        return key


class Outsiders:
    """The devices that were revoked, by id. ``truth`` is the longest device log that any device has verified."""

    def __init__(self, truth: DeviceLog) -> None:
        self.truth = truth
        self._identities: dict[bytes, DeviceIdentity] = {}
        self._rings: dict[bytes, KeyRing] = {}
        self._put: set[bytes] = set()

    def learn(self, member: Member) -> list[bytes]:
        """Follows a device's log. Returns the devices that are out by it and were not before."""
        if self.truth.knows_head(member.log.head):
            return []
        grown = load_log(member.journal, self.truth.vault)
        if not grown.knows_head(self.truth.head):
            return []
        before = {info.device for info in self.truth.members() if info.revoked}
        self.truth = grown
        self._rings.clear()
        return [info.device for info in grown.members() if info.revoked and info.device not in before]

    def expel(self, identity: DeviceIdentity) -> None:
        """Raises Violation if the device can read the very entry by which it is out."""
        self._identities[identity.id] = identity
        info = self.truth.member(identity.id)
        if info is not None and info.revoked is not None and self.opens(identity, info.revoked.entry):
            raise Violation(f"P9: the revoked {identity.id.hex()[:8]} can read how it was revoked")

    def take_as_put(self, bodies: Iterable[bytes]) -> None:
        self._put |= {sha256(body).digest() for body in bodies}

    def check_put(self, member: Member | None, who: str, data: bytes) -> None:
        """Raises Violation if the sender, or who made these bytes, knew of a revocation and the device can open them."""
        name = sha256(data).digest()
        if name in self._put:
            return  # put back as it was: whoever could read it could do so before
        self._put.add(name)
        try:
            entry = parse(data)
        except CryptoError:
            return
        for device, identity in self._identities.items():
            if self._knew(member, entry, device) and self.opens(identity, entry):
                raise Violation(f"P9: {who} put {entry!r}, which the revoked {device.hex()[:8]} can read")

    def opens(self, identity: DeviceIdentity, entry: Entry) -> bool:
        """Whether any key that the device can come by opens the entry, whatever generation it says."""
        for secret in self._secrets(identity):
            try:
                entry.open(GenerationKey(entry.header.generation, secret))
                return True
            except CryptoError:
                continue
        return False

    def _secrets(self, identity: DeviceIdentity) -> Iterator[bytes]:
        if identity.id not in self._rings:
            try:
                self._rings[identity.id] = KeyRing.of_device(identity, self.truth)
            except (NotAMember, CryptoError):
                return
        ring = self._rings[identity.id]
        for number in range(1, self.truth.generation + 1):
            key = ring.key(number)
            if key is not None:
                yield key.secret

    def _knew(self, member: Member | None, entry: Entry, device: bytes) -> bool:
        """Whether the sender's log, or the log that the entry names, has the device out."""
        if member is not None and member.log.member(device) is not None and not member.log.is_active(device):
            return True
        out = False
        for event in self.truth.events:
            out = out or (isinstance(event.record, RevokeRecord) and event.record.device == device)
            if event.entry.hash == entry.header.log_head:
                return out
        return False
