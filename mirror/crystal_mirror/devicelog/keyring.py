"""The generation keys that a device, or the root, has: opened from the bundles in the device log, older ones from newer
ones.

::

    bundle for us in the log --HPKE--> G_n, N          entry that began n --opened with G_n--> G_{n-1}, G_{n-2} ... G_1

No keys are stored beside the log. A key is in use only once the entry that brings it is in the verified log on this
device's disk, and can be opened from there at any time. A bundle or link that does not hold what it should (its maker was
at fault, or hostile) is passed over for another way to the same key; a key that cannot be reached counts as withheld.
"""

from collections.abc import Callable

from crystal_crypto.bundle import open_bundle
from crystal_crypto.errors import CryptoError, WrongKey
from crystal_crypto.hierarchy import GenerationKey, Root, VaultSecret
from crystal_crypto.identity import DeviceIdentity, ExchangeKey
from crystal_crypto.limits import KEY_BYTES
from crystal_mirror.devicelog.log import DeviceLog, SealedKeys
from crystal_mirror.errors import KeysWithheld, NotAMember


class KeyRing:
    """The keys of one recipient. Follows the log as it grows."""

    def __init__(
        self, log: DeviceLog, private: ExchangeKey, bundles: Callable[[], list[SealedKeys]], *, who: str
    ) -> None:
        """Raises WrongKey if no bundle opens at all. Use ``of_device`` or ``of_root``."""
        self._log = log
        self._private = private
        self._bundles = bundles
        self._keys: dict[int, GenerationKey] = {}
        self._tried: set[tuple[int, bytes]] = set()
        self._sought: set[tuple[int, int]] = set()
        secret: VaultSecret | None = None
        for sealed in bundles():
            opened = self._open(sealed)
            if opened is not None:
                secret = opened[1]
                break
        if secret is None:
            raise WrongKey(f"none of the keys that the device log holds for {who} opens")
        self.secret = secret
        """N, as the first bundle gives it. A bundle with another N is not believed."""

    @classmethod
    def of_device(cls, identity: DeviceIdentity, log: DeviceLog) -> "KeyRing":
        """The keys of a device in the log. A revoked device keeps the keys that it had.

        Raises:
            NotAMember: the log does not name this device.
            WrongKey: the log holds other public keys for it, or nothing that opens.
        """
        info = log.member(identity.id)
        if info is None:
            raise NotAMember("this device is not in the vault's device log")
        if info.signing != identity.signing.public:
            raise WrongKey("the vault's device log holds other keys for this device")
        return cls(log, identity.exchange, lambda: log.sealed_keys(identity.id), who="this device")

    @classmethod
    def of_root(cls, root: Root, log: DeviceLog) -> "KeyRing":
        """The keys of the root in force. Raises WrongKey for another root, or one that was replaced."""

        return cls(log, root.recovery, lambda: list(log.recovery_keys), who="this root")

    def current(self) -> GenerationKey:
        """The key of the generation in force.

        Raises:
            KeysWithheld: the log's newest keys do not open here.
        """
        key = self.key(self._log.generation)
        if key is None:
            raise KeysWithheld(
                f"the vault's keys of generation {self._log.generation} were not sealed to this device"
            )
        return key

    def newest_held(self) -> GenerationKey:
        """The newest key that this device has. Raises KeysWithheld if it has none."""
        for generation in range(self._log.generation, 0, -1):
            key = self.key(generation)
            if key is not None:
                return key
        raise KeysWithheld("none of the vault's keys were sealed to this device")

    def key(self, generation: int) -> GenerationKey | None:
        """The key of a generation, or None if it cannot be reached."""
        if generation in self._keys:
            return self._keys[generation]
        if not 1 <= generation <= self._log.generation:
            return None
        self._take_bundle(generation)
        for newer in range(self._log.generation, generation, -1):
            if generation in self._keys:
                break
            if self._has(newer):
                self._take_older(newer, generation)
        return self._keys.get(generation)

    def _has(self, generation: int) -> bool:
        """Whether the key is here, from a bundle or from the entry of a newer generation whose key is here."""
        if generation not in self._keys:
            self._take_bundle(generation)
            newer = sorted((number for number in self._keys if number > generation), reverse=True)
            any(self._take_older(number, generation) for number in newer)
        return generation in self._keys

    def _take_bundle(self, generation: int) -> None:
        for sealed in self._bundles():
            name = (sealed.generation, sealed.log_head)
            if sealed.generation != generation or name in self._tried:
                continue
            self._tried.add(name)
            opened = self._open(sealed)
            if opened is not None and opened[1] == self.secret and self._fits(opened[0]):  # §9.7-2
                self._keys[generation] = opened[0]
                return

    def _open(self, sealed: SealedKeys) -> tuple[GenerationKey, VaultSecret] | None:
        try:
            return open_bundle(
                sealed.bundle,
                self._private,
                vault=self._log.vault,
                recipient_id=sealed.recipient,
                log_head=sealed.log_head,
                generation_number=sealed.generation,  # §9.2-2, §7-1
            )
        except CryptoError:
            return None

    def _take_older(self, newer: int, generation: int) -> bool:
        """Takes a key from the entry that began a newer generation. Returns whether the key is here now."""
        if generation not in self._keys and (newer, generation) not in self._sought:
            self._sought.add((newer, generation))
            at = (newer - 1 - generation) * KEY_BYTES  # §9.7-1
            raw = self._older(newer)[at : at + KEY_BYTES]
            if len(raw) == KEY_BYTES and self._fits(key := GenerationKey(generation, raw)):  # §9.7-2
                self._keys[generation] = key
        return generation in self._keys

    def _older(self, newer: int) -> bytes:
        """The keys before ``newer``, concatenated, the newest first, from the entry that began that generation."""
        entry = self._log.generation_entry(newer)
        try:
            frames = entry.open(self._keys[newer]) if entry is not None else []
        except CryptoError:
            return b""
        return frames[1] if len(frames) > 1 else b""  # §9.2-4, §9.7-1

    def _fits(self, key: GenerationKey) -> bool:
        """Whether the entry that began its generation was sealed with this key."""
        entry = self._log.generation_entry(key.number)
        try:
            return entry is not None and bool(entry.open(key))  # §9.7-2
        except CryptoError:
            return False
