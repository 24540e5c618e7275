"""This device's secrets by name: its identity, the vault's root (where it is held), and its token at the relay.

The key store is chosen once, when the home is set up, and named in ``config.json``; keys never move silently. ``auto`` takes
the system's keyring if it works, else files of mode 0600, which a passphrase can close (``crystal keys passphrase``). Names in
the keyring include the home, so that several homes of one user do not share keys.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from weakref import WeakValueDictionary

from crystal_crypto.errors import KeyStoreError, Malformed, UnknownVersion
from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_crypto.keystore import FileKeyStore, KeyringKeyStore, KeyStore, Preference, choose_keystore
from crystal_crypto.limits import KEY_BYTES
from crystal_node.base.errors import BadConfig
from crystal_node.base.home import Home
from crystal_node.base.process_memory import keep_others_out
from crystal_node.base.settings import KeyStoreKind
from crystal_node.device.keys.passphrase import ask_passphrase

_IDENTITY = "identity"
_NEXT_IDENTITY = "identity.next"
_ROOT = "root"
_TOKEN = "relay-token"  # noqa: S105  the name under which it is kept

_NEXT_TOKEN = "relay-token.next"  # noqa: S105

_REPLACED = "recovery.before"
REPLACED_MAX = 4
"""How many recovery secrets of replaced roots are kept."""

_DATABASE = "database"
_NEXT_DATABASE = "database.next"
_FORMER_DATABASES = "database.before"
FORMER_DATABASES_MAX = 256
"""How many former keys of databases are kept, for backups that were made with them."""

_BRIDGE = "bridge"

NAMES = (
    _IDENTITY,
    _NEXT_IDENTITY,
    _ROOT,
    "root.next",
    _REPLACED,
    _TOKEN,
    _NEXT_TOKEN,
    _DATABASE,
    _NEXT_DATABASE,
    _FORMER_DATABASES,
    _BRIDGE,
)
"""All names under which secrets are kept: a keyring cannot list them."""


@dataclass(frozen=True, slots=True)
class DeviceKeys:
    """Typed access to the key store. ``kind``: file or keyring; ``reason``: why it was chosen; ``backend``: which keyring, for
    ``config.json`` ("" for one that cannot be loaded by its name)."""

    store: KeyStore
    kind: KeyStoreKind
    reason: str
    backend: str = ""

    def close(self) -> None:
        """Wipes the master key of a store with a passphrase. Secrets that were loaded stay in memory."""
        if isinstance(self.store, FileKeyStore):
            self.store.close()

    def identity(self) -> DeviceIdentity | None:
        """The identity, if there is one. Raises KeyStoreError if it is damaged."""
        data = self.store.load(_IDENTITY)
        try:
            return None if data is None else DeviceIdentity.from_bytes(data)
        except UnknownVersion:
            raise
        except Malformed as error:
            place = (
                "state/secrets/identity" if self.kind is KeyStoreKind.FILE else "the keyring's entry identity"
            )
            raise KeyStoreError(
                f"this device's keys, {place}, are damaged: {error}",
                hint=f"Restore {place} from a backup. If there is none, delete it, and join as a new device: "
                "`crystal pair --code -`.",
            ) from error

    def keep_identity(self, identity: DeviceIdentity) -> None:
        self.store.store(_IDENTITY, identity.to_bytes())

    def drop_identity(self) -> None:
        """Forgets the identity; never for a device that is set up."""
        self.store.delete(_IDENTITY)

    def next_identity(self) -> DeviceIdentity:
        """The identity with which a set-up home joins again, made and stored at the first call. Until it has joined, the home
        keeps the current one and everything that only that one opens."""
        data = self.store.load(_NEXT_IDENTITY)
        if data is not None and data == self.store.load(_IDENTITY):
            self._end_switch()  # it has joined already: a crash left it here
            data = None
        identity = DeviceIdentity.generate() if data is None else DeviceIdentity.from_bytes(data)
        if data is None:
            self.store.store(_NEXT_IDENTITY, identity.to_bytes())
        return identity

    def take_next_identity(self) -> None:
        """Makes the next identity this device's own, from the first step on even if a crash follows. Idempotent."""
        data = self.store.load(_NEXT_IDENTITY)
        if data is not None:
            self.store.store(_IDENTITY, data)
            self._end_switch()

    def drop_next_identity(self) -> None:
        """Forgets a next identity that did not join."""
        self.store.delete(_NEXT_TOKEN)
        self.store.delete(_NEXT_IDENTITY)

    def _end_switch(self) -> None:
        identity = self.identity()
        token = self.token(identity.id) if identity is not None else None
        if token is not None:
            self.store.store(_TOKEN, token.encode("ascii"))
        self.drop_next_identity()

    def root(self) -> Root | None:
        data = self.store.load(_ROOT)
        return None if data is None else Root.from_bytes(data)

    def keep_root(self, root: Root) -> None:
        self.store.store(_ROOT, root.to_bytes())

    def drop_root(self) -> None:
        """Removes the root, for a person who has typed a kit back."""
        self.store.delete(_ROOT)

    def replaced_secrets(self) -> list[bytes]:
        """The recovery secrets of roots that were replaced here, newest first."""
        data = self.store.load(_REPLACED) or b""
        return [data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES)]

    def keep_replaced(self, root: Root) -> None:
        """Keeps a replaced root's recovery secret: a relay restored from a backup knows no other."""
        secrets = [root.relay_secret, *self.replaced_secrets()]
        self.store.store(_REPLACED, b"".join(list(dict.fromkeys(secrets))[:REPLACED_MAX]))

    def drop_replaced(self) -> None:
        """Forgets them, for a device that gives the root away: they are of use beside the root only."""
        self.store.delete(_REPLACED)

    def token(self, device: bytes) -> str | None:
        """The token of that device, which may still have its next name just after joining."""
        kept = (self.store.load(name) for name in (_TOKEN, _NEXT_TOKEN))
        tokens = (data.decode("ascii") for data in kept if data is not None)
        return next((token for token in tokens if _is_of(token, device)), None)

    def keep_token(self, token: str) -> None:
        """Stores a token; one of a next identity is kept beside the current one."""
        identity = self.identity()
        own = identity is None or _is_of(token, identity.id)
        self.store.store(_TOKEN if own else _NEXT_TOKEN, token.encode("ascii"))

    def bridge(self) -> bytes | None:
        """Key and token of the relay that this device bridges, in the bridge's own form."""
        return self.store.load(_BRIDGE)

    def keep_bridge(self, credentials: bytes) -> None:
        self.store.store(_BRIDGE, credentials)

    def drop_bridge(self) -> None:
        self.store.delete(_BRIDGE)

    def made_database_key(self) -> bytes:
        """The key of this device's databases, made and stored at the first call. Raises KeyStoreError."""
        return self.store.load(_DATABASE) or self._made_key(_DATABASE)

    def database_keys(self) -> Iterator[bytes]:
        """Every key that databases or backups of this device may have, the present one first."""
        for name in (_DATABASE, _NEXT_DATABASE, _FORMER_DATABASES):
            data = self.store.load(name) or b""
            yield from (data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES))

    def made_next_database_key(self) -> bytes:
        """The key that is to replace the present one, made and stored at the first call. Raises KeyStoreError."""
        return self.store.load(_NEXT_DATABASE) or self._made_key(_NEXT_DATABASE)

    def replace_database_key(self, key: bytes) -> None:
        """Makes this key the present one. The one before is kept: backups may need it. Idempotent."""
        present = self.store.load(_DATABASE)
        if present is not None and present != key:
            formers = present + (self.store.load(_FORMER_DATABASES) or b"")
            self.store.store(_FORMER_DATABASES, formers[: FORMER_DATABASES_MAX * KEY_BYTES])
        self._store_key(_DATABASE, key)

    def drop_next_database_key(self) -> None:
        """Forgets the name of a key that is the present one by now."""
        self.store.delete(_NEXT_DATABASE)

    def _made_key(self, name: str) -> bytes:
        key = os.urandom(KEY_BYTES)
        self._store_key(name, key)
        return key

    def _store_key(self, name: str, key: bytes) -> None:
        self.store.store(name, key)
        if self.store.load(name) != key:
            raise KeyStoreError(
                "the key store did not return the key that it was given; no database was changed with it"
            )


def _is_of(token: str, device: bytes) -> bool:
    return token.partition(".")[0] == device.hex()


def open_keys(home: Home, chosen: str, backend: str = "") -> DeviceKeys:
    """The keys of a set-up home. ``chosen`` and ``backend`` are the key store and keyring that ``config.json`` names.

    A passphrase is asked for when the first secret is loaded. No other program can look into this process from now on.

    Raises:
        BadConfig: it names no key store.
        KeyStoreError: the keyring cannot be reached at all.
    """
    keep_others_out()
    match chosen:
        case KeyStoreKind.FILE:
            store = _given_away.pop((home.secrets, home.passphrase_file), None) or file_store(home)
            _lately_opened[home.secrets, home.passphrase_file] = store
            return DeviceKeys(store, KeyStoreKind.FILE, "")
        case KeyStoreKind.KEYRING:
            keyring = keyring_store(home, backend)
            return DeviceKeys(keyring, KeyStoreKind.KEYRING, "", keyring.backend_name)
        case _:
            raise BadConfig(
                f"config.json names no key store ({chosen!r})", hint='Its "key_store" is file or keyring.'
            )


_Place = tuple[Path, Path | None]
_lately_opened: WeakValueDictionary[_Place, FileKeyStore] = WeakValueDictionary()
_given_away: dict[_Place, FileKeyStore] = {}


def file_store_in_use(home: Home) -> FileKeyStore:
    """The key files as this process has opened them, or will open them next: the passphrase is asked for once."""
    place = (home.secrets, home.passphrase_file)
    return _lately_opened.get(place) or _given_away.setdefault(place, file_store(home))


def choose_keys(home: Home, wanted: KeyStoreKind) -> DeviceKeys:
    """Chooses the key store for a new home.

    Raises:
        KeyStoreError: the keyring is wanted and does not work.
    """
    keep_others_out()
    choice = choose_keystore(
        home.secrets,
        service=service_name(home),
        preference=Preference(wanted.value),
        passphrase=lambda: ask_passphrase(home),
    )
    backend = choice.store.backend_name if isinstance(choice.store, KeyringKeyStore) else ""
    return DeviceKeys(choice.store, KeyStoreKind(choice.place.value), choice.reason, backend)


def file_store(home: Home) -> FileKeyStore:
    """This home's key files, whether they are in use or not."""
    return FileKeyStore(home.secrets, lambda: ask_passphrase(home))


def keyring_store(home: Home, backend: str = "") -> KeyringKeyStore:
    """This home's part of the keyring. Raises KeyStoreError if there is no keyring."""
    try:
        return KeyringKeyStore(service_name(home), backend)
    except KeyStoreError as error:
        raise KeyStoreError(
            f"this device's keys are in the system's keyring: {error}", hint=error.hint
        ) from None


def service_name(home: Home) -> str:
    """This home's name in the keyring."""
    return f"memory-crystal/{sha256(str(home.root).encode()).hexdigest()[:16]}"


def copy_keyring_entries(source: Home, target: Home, backend: str = "") -> None:
    """Makes the target's entries in the keyring those of the source, before a home changes its path. Idempotent.

    Raises:
        KeyStoreError: there is no keyring, or it does not return what it was given. The source's entries are as they were.
    """
    held, made = keyring_store(source, backend), keyring_store(target, backend)
    for name in NAMES:
        data = held.load(name)
        if data is None:
            made.delete(name)
            continue
        made.store(name, data)
        if made.load(name) != data:
            raise KeyStoreError("the keyring did not return the key that it was given; nothing was moved")


def delete_keyring_entries(home: Home, backend: str = "") -> None:
    """Deletes a home's entries. Raises KeyStoreError if there is no keyring."""
    store = keyring_store(home, backend)
    for name in NAMES:
        store.delete(name)
