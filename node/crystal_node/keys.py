"""This device's secrets by name: its identity, the vault's root (where it is held), and its token at the
relay.

Where they are kept is chosen once, when the home is set up, and written in ``config.json``: moving keys
silently from one place to another would be how they get lost. ``auto`` takes the system's keyring when it
truly works, else files of mode 0600. Names carry the home, so that several homes of one user don't share
keys.
"""

from dataclasses import dataclass
from hashlib import sha256

from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_crypto.keystore import FileKeyStore, KeyringKeyStore, KeyStore, Preference, choose_keystore
from crystal_node.errors import BadConfig
from crystal_node.home import Home
from crystal_node.settings import KeyStoreKind

_IDENTITY = "identity"
_ROOT = "root"
_TOKEN = "relay-token"  # noqa: S105  the name under which it is kept


@dataclass(frozen=True, slots=True)
class DeviceKeys:
    """Typed access to the key store. ``kind`` says where it is (file or keyring), ``reason`` why it was chosen."""

    store: KeyStore
    kind: KeyStoreKind
    reason: str

    def identity(self) -> DeviceIdentity | None:
        data = self.store.load(_IDENTITY)
        return None if data is None else DeviceIdentity.from_bytes(data)

    def keep_identity(self, identity: DeviceIdentity) -> None:
        self.store.store(_IDENTITY, identity.to_bytes())

    def root(self) -> Root | None:
        data = self.store.load(_ROOT)
        return None if data is None else Root.from_bytes(data)

    def keep_root(self, root: Root) -> None:
        self.store.store(_ROOT, root.to_bytes())

    def token(self) -> str | None:
        data = self.store.load(_TOKEN)
        return None if data is None else data.decode("ascii")

    def keep_token(self, token: str) -> None:
        self.store.store(_TOKEN, token.encode("ascii"))


def open_keys(home: Home, chosen: str) -> DeviceKeys:
    """The keys of a home that is set up. ``chosen`` is the place that ``config.json`` names.

    Raises:
        BadConfig: it names no place.
        KeyStoreError: the keyring cannot be reached at all.
    """
    match chosen:
        case KeyStoreKind.FILE:
            return DeviceKeys(FileKeyStore(home.secrets), KeyStoreKind.FILE, "")
        case KeyStoreKind.KEYRING:
            return DeviceKeys(KeyringKeyStore(_service(home)), KeyStoreKind.KEYRING, "")
        case _:
            raise BadConfig(
                f"config.json names no key store ({chosen!r})", hint='Its "key_store" is file or keyring.'
            )


def choose_keys(home: Home, wanted: KeyStoreKind) -> DeviceKeys:
    """Finds the place for a new home's keys.

    Raises:
        KeyStoreError: the keyring was asked for and does not truly work.
    """
    choice = choose_keystore(home.secrets, service=_service(home), preference=Preference(wanted.value))
    return DeviceKeys(choice.store, KeyStoreKind(choice.place.value), choice.reason)


def _service(home: Home) -> str:
    return f"memory-crystal/{sha256(str(home.root).encode()).hexdigest()[:16]}"
