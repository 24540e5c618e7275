"""Secrets under a passphrase: the header file, and each secret wrapped. Bytes in, bytes out.

    passphrase --Argon2id(salt, cost)--> KEK --opens the header--> master key --opens each secret, bound to its name

    header   "CRYH" | version 1 | state 1 | lanes 1 | memory KiB 4 | iterations 4 | salt 16 | check 16 | seal salt 24
             | AES-256-GCM of (master key 32 | the master key before it 32, or zeros) and tag 16         151 bytes in all
    secret   "CRYW" | version 1 | key id 8 | salt 24 | AES-256-GCM of the secret and tag 16

Rules: each AES key and nonce is derived by HKDF with a fresh salt and used once; everything before a ciphertext is bound to it.
`check` is derived from the KEK and tells a wrong passphrase from damage. The cost is checked against the limits before
anything is allocated. KEK and master key are bytearrays that are wiped; the library's own copies of them, and the secrets that
`unwrap` returns, cannot be.
"""

import hmac
import struct
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final, cast

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from crystal_crypto import labels
from crystal_crypto.errors import KeyStoreError, Malformed, UnknownVersion, WrongKey, WrongPassphrase
from crystal_crypto.limits import (
    ARGON2_ITERATIONS_MAX,
    ARGON2_LANES_MAX,
    ARGON2_MEMORY_KIB_MAX,
    ARGON2_MEMORY_KIB_MIN,
    KEY_BYTES,
    NONCE_BYTES,
    PASSPHRASE_HEADER_BYTES,
    SALT_BYTES,
    TAG_BYTES,
    WRAPPED_OVERHEAD_BYTES,
)
from crystal_crypto.memory import wipe, wiped

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Random = Callable[[int], bytes]

_VERSION: Final = 1
_HEADER_MAGIC: Final = b"CRYH"
_SECRET_MAGIC: Final = b"CRYW"
_ARGON2_SALT_BYTES: Final = 16
_CHECK_BYTES: Final = 16
_KEY_ID_BYTES: Final = 8
_FIXED: Final = struct.Struct(f">4sBBBII{_ARGON2_SALT_BYTES}s{_CHECK_BYTES}s{SALT_BYTES}s")
_SECRET_HEAD_BYTES: Final = WRAPPED_OVERHEAD_BYTES - TAG_BYTES

assert _FIXED.size + 2 * KEY_BYTES + TAG_BYTES == PASSPHRASE_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of Argon2id. Raises Malformed if out of bounds, before anything is allocated."""

    memory_kib: int
    iterations: int
    lanes: int

    def __post_init__(self) -> None:
        if not (
            1 <= self.lanes <= ARGON2_LANES_MAX
            and 1 <= self.iterations <= ARGON2_ITERATIONS_MAX
            # §18.2-2, §18.2-4
            and ARGON2_MEMORY_KIB_MIN * self.lanes <= self.memory_kib <= ARGON2_MEMORY_KIB_MAX
        ):
            raise Malformed("the passphrase header asks for more or less work than this program does")


COST: Final = Cost(memory_kib=64 * 1024, iterations=32, lanes=4)  # §18.2-4
"""For a new passphrase: 64 MiB, and between half a second and a second on two cores."""


class SealState(IntEnum):
    """How far the files of a store with a header are.

        no header --set--> SEALING --all are wrapped--> SEALED --remove--> UNSEALING --all are plain--> no header
                              ^                            |
                              +---- change: a new key -----+

    In SEALING and UNSEALING a file may be plain, or wrapped with the key before; in SEALED only wrapped with the master key.
    """

    SEALING = 1
    SEALED = 2
    UNSEALING = 3


class MasterKeys:
    """The keys that a passphrase has opened: the current one, and the one before while files are still being rewritten."""

    def __init__(self, current: bytearray, previous: bytearray | None = None) -> None:
        """Takes ownership of the buffers: `wipe` overwrites them."""
        self._current = current
        self._previous = previous

    @classmethod
    def generate(cls, random: Random) -> "MasterKeys":
        return cls(bytearray(random(KEY_BYTES)))

    def renewed(self, random: Random) -> "MasterKeys":
        """A fresh key, with this one as the one before, so that another passphrase does not open the rewritten files."""
        return MasterKeys(bytearray(random(KEY_BYTES)), bytearray(self._current))

    def alone(self) -> "MasterKeys":
        """Without the key before."""
        return MasterKeys(bytearray(self._current))

    def wrap(self, name: str, secret: bytes, random: Random) -> bytes:
        """The secret, wrapped under the current key."""
        salt = random(SALT_BYTES)  # §18.2-1
        head = _SECRET_MAGIC + bytes([_VERSION]) + _key_id(self._current) + salt
        with _cipher(self._current, salt, labels.PASSPHRASE_SECRET + name.encode("ascii")) as (key, nonce):
            return head + _aes(key).encrypt(nonce, secret, head + name.encode("ascii"))

    def unwrap(self, name: str, data: bytes) -> bytes | None:
        """The secret, or None if `data` is not wrapped under one of these keys. Raises WrongKey if it is but was changed."""
        if not is_wrapped(data):
            return None
        key_id = data[5 : 5 + _KEY_ID_BYTES]
        master = next((key for key in self._each() if hmac.compare_digest(_key_id(key), key_id)), None)
        if master is None:  # §18.2-5
            return None
        head, sealed = data[:_SECRET_HEAD_BYTES], data[_SECRET_HEAD_BYTES:]
        with _cipher(master, head[-SALT_BYTES:], labels.PASSPHRASE_SECRET + name.encode("ascii")) as (
            key,
            nonce,
        ):
            try:
                return _aes(key).decrypt(nonce, sealed, head + name.encode("ascii"))
            except InvalidTag:
                raise WrongKey(f"the secret {name!r} was changed, or is another one") from None  # §18.2-5

    def is_current(self, data: bytes) -> bool:
        """Whether a wrapped secret names the current key."""
        return is_wrapped(data) and data[5 : 5 + _KEY_ID_BYTES] == _key_id(self._current)

    def wipe(self) -> None:
        for key in self._each():
            wipe(key)

    def __repr__(self) -> str:
        return "<MasterKeys hidden>"

    def _each(self) -> tuple[bytearray, ...]:
        return (self._current,) if self._previous is None else (self._current, self._previous)

    def material(self) -> bytearray:
        """Both keys as the header seals them, which the caller wipes."""
        return self._current + (bytes(KEY_BYTES) if self._previous is None else self._previous)


@dataclass(frozen=True, slots=True)
class PassphraseHeader:
    """The header file: the parameters of Argon2id, and the sealed master key. It holds nothing secret in the clear."""

    state: SealState
    cost: Cost
    salt: bytes
    check: bytes
    seal_salt: bytes
    sealed: bytes

    @classmethod
    def parse(cls, data: bytes) -> "PassphraseHeader":
        """Raises UnknownVersion, Malformed; a cost beyond the limits is malformed."""
        if data[:4] != _HEADER_MAGIC or len(data) < 5:  # §18.2-2
            raise Malformed("the passphrase header is none")
        if data[4] != _VERSION:  # §18.2-2
            raise UnknownVersion(f"the passphrase header has the unknown version {data[4]}")
        if len(data) != PASSPHRASE_HEADER_BYTES:  # §18.2-2
            raise Malformed(f"the passphrase header must be {PASSPHRASE_HEADER_BYTES} bytes, not {len(data)}")
        _, _, state, lanes, memory, iterations, salt, check, seal_salt = _FIXED.unpack_from(data)
        if state not in set(SealState):  # §18.2-2
            raise Malformed(f"the passphrase header has the unknown state {state}")
        cost = Cost(memory_kib=memory, iterations=iterations, lanes=lanes)
        return cls(SealState(state), cost, salt, check, seal_salt, data[_FIXED.size :])

    def to_bytes(self) -> bytes:
        return self.bound() + self.sealed

    def derive(self, passphrase: bytearray) -> bytearray:
        """The KEK, which the caller wipes. Slow on purpose. Raises WrongPassphrase, KeyStoreError without the memory for
        it."""
        kek = _argon2id(passphrase, self.salt, self.cost)
        if not hmac.compare_digest(_check(kek), self.check):  # §18.2-3
            wipe(kek)
            raise WrongPassphrase("that is not the passphrase of this key store")
        return kek

    def open(self, kek: bytearray) -> MasterKeys:
        """The master keys. Raises WrongKey if the header was changed."""
        opened = bytearray(2 * KEY_BYTES)
        with wiped(opened), _cipher(kek, self.seal_salt, labels.PASSPHRASE_HEADER) as (key, nonce):
            try:
                _aes(key).decrypt_into(nonce, self.sealed, self.bound(), opened)
            except InvalidTag:
                raise WrongKey("the passphrase header was changed") from None  # §18.2-3
            previous = opened[KEY_BYTES:]
            return MasterKeys(opened[:KEY_BYTES], previous if any(previous) else None)

    def with_keys(
        self, kek: bytearray, keys: MasterKeys, state: SealState, random: Random
    ) -> "PassphraseHeader":
        """The same passphrase's header in another state, or with other master keys."""
        bare = replace(self, state=state, seal_salt=random(SALT_BYTES), sealed=b"")
        material = keys.material()
        with wiped(material), _cipher(kek, bare.seal_salt, labels.PASSPHRASE_HEADER) as (key, nonce):
            return replace(bare, sealed=_aes(key).encrypt(nonce, material, bare.bound()))

    def bound(self) -> bytes:
        """Everything before the sealed keys."""
        cost = self.cost
        numbers = (self.state, cost.lanes, cost.memory_kib, cost.iterations)
        return _FIXED.pack(_HEADER_MAGIC, _VERSION, *numbers, self.salt, self.check, self.seal_salt)


def new_header(
    passphrase: bytearray, keys: MasterKeys, cost: Cost, random: Random
) -> tuple[PassphraseHeader, bytearray]:
    """A header in SEALING for a new passphrase, and its KEK, which the caller wipes. Slow on purpose."""
    salt = random(_ARGON2_SALT_BYTES)
    kek = _argon2id(passphrase, salt, cost)
    bare = PassphraseHeader(SealState.SEALING, cost, salt, _check(kek), b"", b"")
    return bare.with_keys(kek, keys, SealState.SEALING, random), kek


def is_wrapped(data: bytes) -> bool:
    """Whether a file's bytes have the form of a wrapped secret of this version."""
    return data[:4] == _SECRET_MAGIC and data[4:5] == bytes([_VERSION]) and len(data) > WRAPPED_OVERHEAD_BYTES


def _argon2id(passphrase: bytearray, salt: bytes, cost: Cost) -> bytearray:
    # Lazy: only a store with a passphrase needs it.
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

    kek = bytearray(KEY_BYTES)
    try:
        function = Argon2id(
            salt=salt,
            length=KEY_BYTES,
            iterations=cost.iterations,
            lanes=cost.lanes,
            memory_cost=cost.memory_kib,
        )
        # It takes any buffer, whatever its types say: a copy as bytes could not be wiped.
        function.derive_into(cast(bytes, passphrase), kek)
    except MemoryError:
        raise KeyStoreError(
            f"there is not enough memory to check a passphrase: it takes {cost.memory_kib // 1024} MiB",
            hint="Close other programs, or raise the memory limit of this one",
        ) from None
    except UnsupportedAlgorithm:
        raise KeyStoreError(
            "this installation's OpenSSL has no Argon2id", hint="Update cryptography"
        ) from None
    return kek


def _check(kek: bytearray) -> bytes:
    return HKDF(SHA256(), _CHECK_BYTES, b"", labels.PASSPHRASE_CHECK).derive(kek)


def _key_id(master: bytearray) -> bytes:
    return HKDF(SHA256(), _KEY_ID_BYTES, b"", labels.PASSPHRASE_KEY_ID).derive(master)


@contextmanager
def _cipher(key: bytearray, salt: bytes, info: bytes) -> Generator[tuple[memoryview, memoryview]]:
    """An AES key and nonce for one use, wiped afterwards."""
    buffer = bytearray(KEY_BYTES + NONCE_BYTES)
    HKDF(SHA256(), len(buffer), salt, info).derive_into(key, buffer)
    view = memoryview(buffer)
    with wiped(buffer):
        yield view[:KEY_BYTES], view[KEY_BYTES:]


def _aes(key: bytes | bytearray | memoryview) -> "AESGCM":
    # Loaded with the first wrapped secret: a search in an encrypted home reads one secret, which need not be wrapped.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
