"""The composition root: opens a device from its home.

``Device.open`` needs no network: keys, journal, memory, membership. ``online`` adds the relay. Imports within functions are
lazy so that commands which need neither HTTP nor an embedding model start fast.
"""

import os
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crystal_core.replica import Replica
from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.errors import NotAMember
from crystal_mirror.membership.authority import in_force
from crystal_mirror.membership.member import Member, load_keys, load_log
from crystal_mirror.operations import Operation
from crystal_mirror.types import Origin
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import LocalStorage, NotSetUp
from crystal_node.base.settings import Settings
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.keys.device_keys import DeviceKeys, open_keys
from crystal_node.device.keys.roots import kept_roots
from crystal_node.device.privacy import keep_copy

if TYPE_CHECKING:
    from crystal_node.device.relay import FreshToken
    from crystal_node.models.embedding import HeldEmbedder
    from crystal_relay.client.http import HttpStore
    from crystal_relay.store import Store

META_PENDING_SINCE = "node.pending-since"
"""When the outbox last began to fill, by this device's clock, in milliseconds."""


@dataclass
class Device:
    """A device of a vault, opened. Close it, or use ``opened``."""

    settings: Settings
    keys: DeviceKeys
    identity: DeviceIdentity
    journal: SqliteJournal
    replica: Replica
    member: Member
    spare_root: Root | None = None
    """A second root in the key store: a replaced one that the relay may still know (``keys.roots``)."""

    @property
    def root(self) -> Root | None:
        """The root in this device's key store, in force or not."""
        return self.member.root

    @property
    def name(self) -> str:
        """This device's name in the vault; it may have been renamed on another device."""
        from crystal_mirror.membership.status import device_name

        return device_name(self.member, self.member.device_id) or self.settings.name.value

    @property
    def holds_root(self) -> bool:
        """Whether the root in force is in this device's key store."""
        return self.root is not None and in_force(self.member.log, self.root)

    def look_for_root(self) -> None:
        """Reads the root from the key store again: another process may have replaced it. Raises KeyStoreError."""
        kept = kept_roots(self.keys, self.member.log)
        self.member.root, self.spare_root = kept.root, kept.spare

    @classmethod
    def open(cls, settings: Settings) -> "Device":
        """Opens this home's device.

        Raises:
            NotSetUp: this home belongs to no vault.
            LocalStorage: keys or journal are missing although a vault is named, or others can use the home.
            VaultDataError, JournalDamaged, KeyStoreError.
        """
        vault = settings.vault
        if vault is None:
            raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
        settings.home.check_private()
        keys = open_keys(settings.home, settings.config.key_store, settings.config.keyring_backend)
        identity = keys.identity()
        if identity is None:
            raise LocalStorage(
                f"this device's keys are not in its key store ({keys.kind})",
                hint="Restore state/secrets or the keyring from a backup, or join again: `crystal pair --code -`.",
            )
        journal = SqliteJournal.open(settings.home.state_file())
        try:
            log = load_log(journal, vault)
            kept = kept_roots(keys, log)
            secret = load_keys(identity, log)[1]
            keep_copy(journal)
            replica = Replica.open(settings.home.database, secret)
            try:
                member = Member.open(identity, vault, journal, replica, os.urandom, kept.root)
            except BaseException:
                replica.close()
                raise
        except NotAMember as error:
            journal.close()
            raise LocalStorage(
                f"{settings.home.state_database} does not hold this vault's device log",
                hint="Restore it from a backup, or join again with `crystal pair --code -`; nothing was changed.",
            ) from error
        except BaseException:
            journal.close()
            raise
        return cls(settings, keys, identity, journal, replica, member, kept.spare)

    def close(self) -> None:
        self.replica.close()
        self.journal.close()
        self.keys.close()

    def accept(
        self,
        operations: Sequence[Operation],
        extra: Callable[[], None] | None = None,
        *,
        nudges: bool = True,
    ) -> list[Origin]:
        """Puts operations into the outbox and wakes a running watcher, unless the caller is one that wakes itself.

        ``extra`` runs in the same transaction of the journal.
        """

        def also(_transaction: object) -> None:
            if self.journal.outbox_count() == len(operations):
                self.journal.meta_set(META_PENDING_SINCE, b"%d" % now_ms())
            if extra is not None:
                extra()

        origins = self.member.accept_many(operations, also)
        if nudges:
            self.settings.home.nudge()
        return origins

    def pending_seconds(self) -> float | None:
        """Upper bound of how long the outbox has held something, by the local clock; None when it is empty."""
        since = self.journal.meta_get(META_PENDING_SINCE)
        if since is None or not self.journal.outbox_count():
            return None
        return max(now_ms() - int(since), 0) / 1000

    def embedder(self) -> "HeldEmbedder":
        """The embedder of this device as Core; its model is loaded at first use. Raises EmbedderRefused."""
        from crystal_mirror.entries.control_state import META_MODEL
        from crystal_node.models.embedding import embedder_for

        return embedder_for(self.settings, (self.replica.meta_get(META_MODEL) or b"").decode())

    @asynccontextmanager
    async def at_relay(self) -> AsyncGenerator["HttpStore", None]:
        """The relay's plain client, for tokens, members and the recovery secret. It does not retry, and raises RelayError.

        Raises:
            NotSetUp: no relay is configured, or this device has no token for it.
        """
        from crystal_node.device.relay import open_http

        async with open_http(self.settings, vault=self.member.vault, token=self._token()) as store:
            yield store

    @asynccontextmanager
    async def online(self) -> AsyncGenerator["Store", None]:
        """The relay as a store.

        Raises:
            NotSetUp: no relay is configured, or this device has no token for it.
            Revoked: instead of the relay's refusal, if the device log here explains it.
        """
        from crystal_node.device.relay import open_store
        from crystal_node.device.runner import TokenRefused

        async with open_store(self.settings, vault=self.member.vault, token=self._token()) as store:
            try:
                yield store
            except TokenRefused:
                self.member.check_active()
                raise

    def _token(self) -> "FreshToken":
        from crystal_node.device.relay import FreshToken

        def load() -> str | None:
            return self.keys.token(self.identity.id)

        token = load()
        if not self.settings.relay_url:
            raise NotSetUp("this device has no relay", hint="Join again: `crystal pair --code -`.")
        if token is None:
            raise NotSetUp(
                "this device has no token of its own for the relay",
                hint="Join again: `crystal pair --code -`.",
            )
        return FreshToken(load, token)


def name_in_vault(settings: Settings) -> str:
    """The name of a home's device in its vault. Raises what ``Device.open`` raises."""
    with opened(settings) as device:
        return device.name


@contextmanager
def opened(settings: Settings) -> Generator[Device, None, None]:
    """``Device.open`` as a context that closes the device."""
    device = Device.open(settings)
    try:
        yield device
    finally:
        device.close()
