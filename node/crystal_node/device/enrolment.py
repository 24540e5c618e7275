"""Enrolment: founding a vault on this machine, and joining one by its code (``crystal init``, ``crystal pair``).

Joining by an invite is in ``safekeeping.pairing``; what it does to the home is here. Both can be killed anywhere and run
again. Keys are stored first, so that nothing is lost that a relay has heard of; ``config.json`` names the vault last, which
makes a home *set up*::

    nothing --keys stored--> keyed --relay knows us, log written--> config.json names the vault: set up

On a home that is set up they only repair the relay's side (a new address, an emptied relay, a lost token); a home never
goes from one vault to another. With ``--new-keys`` it joins as another device: the new keys and token are kept beside the old
ones, which work until the new ones replace them in the last step.

A device that joined at a place where the relay's device log was damaged is alone on a branch: nobody lists it or takes what it
sends. When such a home joins again it does so as another device, by the log as it is shown now, and offers what waits here.
"""

import os
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass

from msgspec.structs import replace

from crystal_crypto.entry import parse
from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.damage import unread_place
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.records import Details
from crystal_mirror.devicelog.sync import META_OWN, own_slots
from crystal_mirror.errors import LogDamaged, WrongVault
from crystal_mirror.membership.authority import in_force
from crystal_mirror.membership.founding import found, join, read_whole
from crystal_mirror.membership.member import load_log
from crystal_mirror.ports import JournalView
from crystal_mirror.requests import Flow
from crystal_mirror.store_keys import StoreKeys
from crystal_mirror.streams.outbox import restart_stream
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import LocalStorage, NotSetUp, UsageError, WrongCode
from crystal_node.base.home import Home
from crystal_node.base.locking import FileLock, is_held
from crystal_node.base.settings import LOCAL_RELAY, Config, Settings
from crystal_node.device.access import META_ACCESS
from crystal_node.device.agent_name import META_JOINED, waiting_mark
from crystal_node.device.device import name_in_vault, opened
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.keys.device_keys import DeviceKeys, choose_keys, open_keys
from crystal_node.device.keys.roots import kept_roots, take_root
from crystal_node.device.privacy import begin_after_loss, read_privacy, write_privacy
from crystal_node.device.redaction_version import META_RULES, RULES_VERSION
from crystal_node.device.registration import (
    UnknownVault,
    WrongEnrolmentToken,
    create_vault,
    keep_new,
    register,
    token_for,
)
from crystal_node.device.relay import open_http, own_enrolment_token
from crystal_node.device.relay_move import MoveProgress, RelayAccess, copy_objects, drop_own_relay
from crystal_node.device.runner import Runner
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import RelayError, Unauthorized
from crystal_relay.keys import vault_prefix

_SETUP_WAIT_SECONDS = 5.0
_MOVE_WAIT_SECONDS = 60.0
"""For a round under way to end."""


@dataclass(frozen=True, slots=True)
class EnrolmentResult:
    """The result. ``fresh`` is False when the home was set up before and only the relay's side was repaired.

    ``name``: the device's name in the vault, which may be the requested one with a number. ``anew``: the home was set up
    before and is another device now; ``replaced``: the former one, b"" if unknown.
    """

    settings: Settings
    keys: DeviceKeys
    vault: bytes
    device: bytes
    fresh: bool
    name: str
    anew: bool = False
    replaced: bytes = b""


async def found_vault(
    settings: Settings, enrolment_token: str, progress: MoveProgress = lambda _what, _done, _total: None
) -> EnrolmentResult:
    """Founds a vault with this device as its Core, or registers an existing one at a relay again.

    Without a relay and a token for one, the vault's relay is in this home, for this machine alone. Given another one later, the
    vault moves there, with all that it has.

    Raises:
        UsageError: a token was given, and no relay. NotSetUp: no enrolment token was given.
        WrongCode: this home belongs to a vault whose root is not here.
        RelayRefused, StoreFailure.
    """
    if not settings.relay_url and not enrolment_token:
        settings = settings.at_own_relay()
    _need_relay(settings)
    if settings.relay_is_local:
        enrolment_token = own_enrolment_token(settings)
    if not enrolment_token:
        raise NotSetUp(
            "the relay's enrolment token is needed to make a vault there",
            hint="The relay prints it at its first start. Set CRYSTAL_RELAY_ENROLL_TOKEN, or pipe it: --enroll-token -",
        )
    with _setup(settings):
        settings = settings.reread()
        fresh = settings.vault is None
        keys, settings = _keys(settings)
        root = keys.root() if settings.vault is None else _root_of(settings, keys, settings.vault)
        new = root is None
        if root is None:
            root = Root.generate()
            keys.keep_root(root)
        vault = settings.vault or root.vault
        identity = _identity(keys)
        token = token_for(settings, keys, identity)
        log = DeviceLog(vault) if fresh else _kept_log(settings, vault)
        try:
            async with open_http(settings, vault=vault, token=token) as store:
                accepted = await create_vault(store, keys, root, identity, token, enrolment_token, log)
        except WrongEnrolmentToken:
            if new:  # the relay took nothing, so that this root must not keep the home from another vault
                keys.drop_root()
            raise
        keep_new(keys, identity, accepted)
        moves = not fresh and settings.config.relay_url == LOCAL_RELAY and not settings.relay_is_local
        with _no_round(settings.home) if moves else nullcontext():
            if moves:
                own = RelayAccess(settings.at_own_relay(), token)
                await copy_objects(own, RelayAccess(settings, accepted), vault, identity.id, progress)
            async with open_http(settings, vault=vault, token=accepted) as store:
                await _write_log(settings, store, root, identity, founding=fresh, vault=vault)
            settings = _finish(settings, vault)
        _note_device(settings, vault, identity.id)
        if not is_held(settings.home.watch_lock):
            drop_own_relay(settings)  # else the background service does, when it has seen the new one
    return EnrolmentResult(settings, keys, vault, identity.id, fresh, name_in_vault(settings))


async def own_relay_lost(settings: Settings) -> bool:
    """Whether the relay in this home answers but no longer knows this home's vault, as after its folder was lost."""
    if settings.vault is None or settings.config.relay_url != LOCAL_RELAY:
        return False
    settings = settings.at_own_relay()
    keys = open_keys(settings.home, settings.config.key_store, settings.config.keyring_backend)
    identity = keys.identity()
    token = None if identity is None else keys.token(identity.id)
    if settings.vault is None or token is None:
        return False
    try:
        async with open_http(settings, vault=settings.vault, token=token) as store:
            await store.list(vault_prefix(settings.vault.hex()), limit=1)
    except Unauthorized:
        return True
    except RelayError:  # `crystal sync` and `crystal doctor` say what is wrong with it
        return False
    return False


async def join_vault(
    settings: Settings, root: Root, vault: bytes | None = None, *, new_keys: bool = False
) -> EnrolmentResult:
    """Joins a vault by its root, or registers this member at the relay again.

    ``vault`` None: the one that this root founded. ``new_keys``: as another device.

    Raises:
        WrongCode: the relay has no such vault, or this home belongs to another one.
        LogDamaged: the relay's device log cannot be read to its end. A home that was not set up is as it was before.
        RelayRefused, StoreFailure.
    """
    _need_relay(settings)
    if settings.relay_is_local:
        raise UsageError(
            "a vault of another machine cannot be at the relay in this home", hint="Add --relay URL."
        )
    vault = root.vault if vault is None else vault
    with joining(settings, vault, new_keys=new_keys) as home:
        settings, keys, identity = home.settings, home.keys, home.identity
        kept = None if home.unfinished else keys.root()
        home.journal().close()
        token = token_for(settings, keys, identity)
        async with open_http(settings, vault=vault, token=token) as store:
            token = await register(store, keys, root, identity, token)
        keep_new(keys, identity, token)
        async with open_http(settings, vault=vault, token=token) as store:
            await home.check_log(store, root)
        if kept is None:
            # Only now: a code that the relay does not know, or a log that cannot be read, must not block the right one.
            keys.keep_root(root)
            home.unfinished = False
        async with open_http(settings, vault=vault, token=token) as store:
            await _write_log(settings, store, root, identity, founding=False, vault=vault)
        if kept is not None and kept != root:
            take_root(keys, root)  # the log has it in force, so the former root has no power
        return home.finish()


@dataclass(slots=True)
class PendingEnrolment:
    """A home that is joining a vault: its keys are stored, and ``config.json`` does not name the vault yet.

    ``anew``: the home is set up and joins as another device; until then it remains the old one. ``before``: the old device, if
    known. ``keyless``: its keys were lost, and ``identity`` is new. ``stray``: the home had joined where the log was damaged,
    and joins as another device for that. ``unfinished``: a root is kept of a vault that was begun here and never came to be.
    """

    settings: Settings
    keys: DeviceKeys
    identity: DeviceIdentity
    vault: bytes
    fresh: bool
    anew: bool = False
    before: bytes = b""
    keyless: bool = False
    stray: bool = False
    unfinished: bool = False

    async def check_log(self, store: HttpStore, root: Root) -> None:
        """Checks, for a device that is new to the vault, that the relay's device log can be read to its end, and forgets the
        branch that this home was alone on.

        Raises:
            LogDamaged: it cannot. What this device had kept and told the relay is taken back.
            UnknownVault: the relay has no device log for this vault.
        """
        if not (self.fresh or self.anew) or (self.kept_log() and not self.stray):
            return
        read = SqliteJournal.open(":memory:")
        try:
            await Runner(store, None).run(read_whole(load_log(read, self.vault), read, StoreKeys(self.vault)))
        except LogDamaged:
            with suppress(RelayError):
                await store.revoke_token(device=self.identity.id, recovery=root.relay_secret)
            self.abandon()
            raise
        except WrongVault as error:
            raise UnknownVault from error
        finally:
            read.close()
        self.drop_stray()

    def kept_log(self) -> bool:
        """Whether a device log is kept here."""
        with closing(self.journal()) as journal:
            return bool(journal.log_entries())

    def drop_stray(self) -> None:
        """Forgets the branch of the device log that this home was alone on, if it was."""
        if not self.stray:
            return
        journal = self.journal()
        try:
            with journal.transaction() as transaction:
                transaction.meta_set(META_STRAY, b"1")
                transaction.meta_set(META_OWN, None)
                journal.drop_log()
        finally:
            journal.close()

    def journal(self) -> SqliteJournal:
        """The home's journal, which belongs to the vault from now on."""
        return _journal(self.settings, self.vault)

    def finish(self) -> EnrolmentResult:
        """Names the vault in ``config.json``: the home is set up. If it joins as another device, switches its keys last."""
        if self.unfinished:
            self.keys.drop_root()
        if self.fresh:
            _note(self.settings, self.vault, META_JOINED, waiting_mark(self.settings))
        self.settings = _finish(self.settings, self.vault)
        if self.anew:
            self.keys.take_next_identity()
        _note_device(self.settings, self.vault, self.identity.id)
        if not self.fresh:
            _adopt_outbox(self.settings)
        if self.stray:
            _note(self.settings, self.vault, META_STRAY, None)
        replaced = self.before if self.before != self.identity.id else b""
        anew = not self.fresh and (self.anew or self.keyless or bool(replaced))
        return EnrolmentResult(
            self.settings,
            self.keys,
            self.vault,
            self.identity.id,
            self.fresh,
            name_in_vault(self.settings),
            anew,
            replaced if anew else b"",
        )

    def abandon(self) -> None:
        """Drops the keys that are not in use yet, so that those who were told of them never meet them again."""
        if self.fresh:
            self.keys.drop_identity()
        elif self.anew:
            self.keys.drop_next_identity()


@contextmanager
def joining(settings: Settings, vault: bytes, *, new_keys: bool = False) -> Generator[PendingEnrolment]:
    """Prepares a home to join a vault: locks its set-up and stores the device's keys.

    Raises:
        WrongCode: the home belongs to another vault. Nothing was changed.
        HomeBusy: another process sets it up.
        KeyStoreError: the keys cannot be kept.
    """
    if settings.vault is not None and settings.vault != vault:
        raise _other_vault(settings.vault, alone=settings.config.relay_url == LOCAL_RELAY)
    with _setup(settings):
        # A person may have typed a code for minutes: read again where the keys are.
        settings = settings.reread()
        if settings.vault is not None and settings.vault != vault:
            raise _other_vault(settings.vault)
        fresh = settings.vault is None
        keys, settings = _keys(settings)
        kept = keys.root()
        belongs = _check_journal(settings, vault)
        stray = not fresh and _is_stray(settings, vault)
        new_keys = new_keys or stray
        # A root that replaced another does not tell its vault; the journal does.
        unfinished = fresh and kept is not None and vault not in (kept.vault, belongs)
        if unfinished and settings.home.database.exists():
            raise _other_vault(kept.vault if kept is not None else None)
        anew = new_keys and not fresh
        own = keys.identity()
        before = own.id if anew and own is not None else _device_before(settings)
        identity = keys.next_identity() if anew else _identity(keys, new=new_keys)
        yield PendingEnrolment(
            settings,
            keys,
            identity,
            vault,
            fresh,
            anew,
            before,
            keyless=own is None,
            stray=stray,
            unfinished=unfinished,
        )


def prepare_node(settings: Settings, *, keep_relay: bool = True) -> Settings:
    """Makes the home and saves the given settings; the vault comes with ``crystal pair``.

    ``keep_relay``: False where the relay may turn out to be the wrong one.
    """
    with _setup(settings):
        settings = settings.reread()
        config = _config(settings, vault=settings.config.vault)
        return settings.save(config if keep_relay else replace(config, relay_url=settings.config.relay_url))


def _setup(settings: Settings) -> FileLock:
    home, person = settings.home, settings.person_home
    if home.root.parent == person and not person.is_dir():
        raise LocalStorage(
            f"your home folder {person} does not exist",
            hint="Set HOME to the one that you have, or CRYSTAL_HOME to where the memory is to be.",
        )
    home.create()
    return FileLock(home.setup_lock, purpose="crystal init or pair", wait_seconds=_SETUP_WAIT_SECONDS)


@contextmanager
def _no_round(home: Home) -> Generator[None]:
    """Neither messages nor files nor a snapshot go to a relay meanwhile."""
    with ExitStack() as held:
        for path in (home.sync_lock, home.files_lock, home.snapshot_lock):
            held.enter_context(FileLock(path, purpose="crystal pair", wait_seconds=_MOVE_WAIT_SECONDS))
        yield


def _need_relay(settings: Settings) -> None:
    if not settings.relay_url:
        raise UsageError("no relay was given", hint="Add --relay URL, or set CRYSTAL_RELAY_URL.")


def _keys(settings: Settings) -> tuple[DeviceKeys, Settings]:
    """This home's key store, named in ``config.json`` before a key goes there."""
    if settings.config.key_store:
        config = settings.config
        return open_keys(settings.home, config.key_store, config.keyring_backend), settings
    keys = choose_keys(settings.home, settings.key_store)
    config = _config(settings, vault="", key_store=keys.kind.value)
    # The relay may still turn out to be the wrong one: it is saved with the vault.
    return keys, settings.save(
        replace(config, keyring_backend=keys.backend, relay_url=settings.config.relay_url)
    )


def _kept_log(settings: Settings, vault: bytes) -> DeviceLog:
    with closing(_journal(settings, vault)) as journal:
        return load_log(journal, vault)


def _root_of(settings: Settings, keys: DeviceKeys, vault: bytes) -> Root:
    """The root in force of a set-up home's vault. Raises WrongCode if it is not here."""
    log = _kept_log(settings, vault)
    root = kept_roots(keys, log).root
    if root is None or not in_force(log, root):
        raise WrongCode(
            "this home belongs to a vault whose root is not on this machine",
            hint="Run `crystal recovery restore --relay URL --enroll-token -` with the recovery kit instead.",
        )
    return root


def _config(settings: Settings, *, vault: str, key_store: str | None = None) -> Config:
    config = settings.config
    return replace(
        config,
        vault=vault,
        relay_url=settings.relay_url,
        agent=settings.agent_id,
        name=settings.name.value,
        key_store=config.key_store if key_store is None else key_store,
        relay_allow_http=settings.allow_http,
    )


def _identity(keys: DeviceKeys, *, new: bool = False) -> DeviceIdentity:
    identity = None if new else keys.identity()
    if identity is None:
        identity = DeviceIdentity.generate()
        keys.keep_identity(identity)
    return identity


async def _write_log(
    settings: Settings,
    store: HttpStore,
    root: Root,
    identity: DeviceIdentity,
    *,
    founding: bool,
    vault: bytes,
) -> None:
    journal = _journal(settings, vault)
    details = Details(settings.name.value, system_name(), now_ms(), identity.id)
    flow: Flow[None] = (
        found(identity, root, journal, os.urandom, details)
        if founding
        else join(identity, root, journal, os.urandom, details, vault)
    )
    try:
        await Runner(store, None).run(flow)
    except WrongVault as error:
        raise UnknownVault from error
    finally:
        journal.close()


TAKE_ALONG = (
    "`crystal up --code -` takes this machine's own memory along into the other vault. "
    "Or use another home for the other vault: CRYSTAL_HOME=~/.crystal-2."
)
"""For a machine that was set up alone before it joins."""


def _other_vault(vault: bytes | None, *, alone: bool = False) -> WrongCode:
    named = vault.hex()[:8] if vault else "unknown"
    return WrongCode(
        f"this home belongs to another vault ({named}) than that code",
        hint=TAKE_ALONG
        if alone
        else "Use another home for it: CRYSTAL_HOME=~/.crystal-2 crystal pair --code -",
    )


def _journal(settings: Settings, vault: bytes) -> SqliteJournal:
    """The journal, if it belongs to this vault or to none yet.

    Raises:
        WrongCode: it holds something of another vault, which must not be lost. Nothing was changed.
    """
    journal = SqliteJournal.open(settings.home.state_file())
    try:
        _refuse_foreign(journal, vault)
        with journal.transaction() as transaction:
            if journal.meta_get(META_VAULT) is None:
                _begin_privacy(settings, journal)
                transaction.meta_set(META_RULES, b"%d" % RULES_VERSION)
                if settings.vault is not None and not settings.home.database.exists():  # both were lost
                    transaction.meta_set(META_JOINED, waiting_mark(settings))
            transaction.meta_set(META_VAULT, vault)
    except BaseException:
        journal.close()
        raise
    return journal


def _begin_privacy(settings: Settings, journal: SqliteJournal) -> None:
    """Private mode in a new journal: off, unless it takes the place of one that was lost."""
    if settings.vault is None:
        write_privacy(journal, read_privacy(journal))
    elif not journal.log_entries():
        begin_after_loss(journal)


def _check_journal(settings: Settings, vault: bytes) -> bytes | None:
    """The vault that the journal belongs to. Raises WrongCode as ``_journal``, and writes nothing."""
    if not settings.home.state_database.exists():
        return None
    journal = SqliteJournal.open(settings.home.state_file())
    try:
        _refuse_foreign(journal, vault)
        return journal.meta_get(META_VAULT)
    finally:
        journal.close()


def _is_stray(settings: Settings, vault: bytes) -> bool:
    """Whether this home joined where the relay's device log was damaged: it wrote its own entry after that place."""
    if not settings.home.state_database.exists():
        return False
    journal = SqliteJournal.open(settings.home.state_file())
    try:
        if journal.meta_get(META_STRAY) is not None:
            return True
        log = load_log(journal, vault)
        place = None if log.root is None else unread_place(log, journal)
        if place is None:
            return False
        own = own_slots(journal)
        return any(event.slot in own and event.slot > place for event in log.events)
    finally:
        journal.close()


def _device_before(settings: Settings) -> bytes:
    """The device that this home was last, by its journal or its outbox; b"" if unknown."""
    if not settings.home.state_database.exists():
        return b""
    journal = SqliteJournal.open(settings.home.state_file())
    try:
        return journal.meta_get(META_DEVICE) or _outbox_sender(journal) or b""
    finally:
        journal.close()


def _outbox_sender(journal: JournalView) -> bytes | None:
    names = journal.names()
    row = journal.row(names[0].incarnation, names[0].sequence) if names else None
    return None if row is None else parse(row.sealed).header.sender


def _refuse_foreign(journal: SqliteJournal, vault: bytes) -> None:
    belongs = journal.meta_get(META_VAULT)
    if belongs is not None and belongs != vault and (journal.log_entries() or journal.outbox_count()):
        raise _other_vault(belongs)


META_VAULT = "node.vault"
"""In the journal: its vault."""
META_DEVICE = "node.device"
"""In the journal: this home's device, for a home whose keys are lost."""
META_STRAY = "node.stray"
"""In the journal: the branch of the device log that this home was alone on was dropped, and it is not another device yet."""


def _adopt_outbox(settings: Settings) -> None:
    """Lets the new identity send what a lost one had accepted, under its old names."""
    with opened(settings) as device, device.journal.transaction() as transaction:
        sender = _outbox_sender(transaction)
        if sender is not None and sender != device.identity.id:
            restart_stream(device.member, transaction)
        transaction.meta_set(META_ACCESS, None)  # it was let in now


def _finish(settings: Settings, vault: bytes) -> Settings:
    return settings.save(_config(settings, vault=vault.hex()))


def _note_device(settings: Settings, vault: bytes, device: bytes) -> None:
    _note(settings, vault, META_DEVICE, device)


def _note(settings: Settings, vault: bytes, name: str, value: bytes | None) -> None:
    with closing(_journal(settings, vault)) as journal, journal.transaction() as transaction:
        transaction.meta_set(name, value)


def system_name() -> str:
    """This machine's system, for lists of devices: "Linux x86_64"."""
    system = os.uname()
    return f"{system.sysname} {system.machine}"
