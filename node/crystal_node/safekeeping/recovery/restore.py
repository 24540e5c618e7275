"""Recovers a vault with its recovery kit on a fresh home: from the relay that has it, or from a copy of any device's home.

::

    nothing --keys stored--> keyed --(from a home: its databases copied)--> at the relay by the root's power
      --(the relay lacks the device log: put back)--> added by the root --> the other device's outbox taken over
      --> config.json names the vault: set up --(mirror put back, lead taken)--> synced --(files copied)--> done

This device gets an identity of its own: two devices with one key would overwrite each other's entries, and the lost one may
come back. A process that dies anywhere is followed by another that finds what is done and goes on. The other home is only read.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from crystal_crypto.hierarchy import Root
from crystal_crypto.kit import Kit
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.records import Details
from crystal_mirror.errors import LogDamaged, WrongVault
from crystal_mirror.membership.cursors import seen_cursors
from crystal_mirror.membership.founding import join
from crystal_mirror.membership.member import load_log
from crystal_mirror.membership.status import device_name
from crystal_mirror.repair.recovery import adopt_outbox, log_complete, missing, put_back_log, put_back_mirror
from crystal_mirror.replication.claim import claim
from crystal_mirror.replication.rebuild import mark_rebuild, rebuild_pending
from crystal_mirror.store_keys import StoreKeys
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import Settings
from crystal_node.device.device import Device, opened
from crystal_node.device.enrolment import PendingEnrolment, joining, system_name
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.keys.roots import take_root
from crystal_node.device.privacy import read_privacy
from crystal_node.device.recovery_kit import KitOutdated, WrongKit, check_kit, kit_mark
from crystal_node.device.registration import (
    UnknownVault,
    create_vault,
    keep_new,
    register,
    token_for,
)
from crystal_node.device.relay import open_http, own_enrolment_token
from crystal_node.device.runner import Runner
from crystal_node.safekeeping.recovery.files import FilesBack, bring_files
from crystal_node.safekeeping.recovery.home_copy import (
    META_RESTORED,
    Phase,
    RestoreProgress,
    begins_anew,
    check_done,
    check_memory,
    copy_home,
    end_progress,
    read_progress,
    undo_copy,
    write_progress,
)
from crystal_node.safekeeping.recovery.source_home import DamagedHome, find_source_home
from crystal_node.sync.maintenance.verification import verify
from crystal_node.sync.syncer import Syncer
from crystal_relay.client.http import HttpStore
from crystal_relay.decorators import RetryingStore, RetryPolicy
from crystal_relay.errors import RecoveryReplaced

CORE_SEEN_MS = 24 * 3600 * 1000
"""A Core that has published nothing for this long may be gone: it publishes its position every six hours."""


@dataclass(frozen=True, slots=True)
class Core:
    """The Core, as this device knows it. ``seen_ms``: its own clock when it last published its position; 0 if it never did."""

    device: bytes
    name: str | None
    seen_ms: int

    def lately(self, now: int) -> bool:
        return abs(now - self.seen_ms) < CORE_SEEN_MS


@dataclass(frozen=True, slots=True)
class Lack:
    """What could not be recovered: a device (None: the copied home) had applied entries up to here, which are missing."""

    device: bytes | None
    name: str | None
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The outcome.

    ``fresh``: False for a home that was set up before; ``relay_lost``: the relay had lost the vault; ``others``: the other
    active devices, by id and name; ``private``: private mode is on, as in the copied home; ``files``: of the copied home, None
    if they were not wanted.
    """

    settings: Settings
    vault: bytes
    device: bytes
    fresh: bool
    from_home: bool
    relay_lost: bool
    log_put_back: int
    mirror_put_back: int
    taken_over: int
    is_core: bool
    epoch: int
    sequence: int
    digest: bytes
    core: Core | None
    lacks: tuple[Lack, ...]
    others: tuple[tuple[bytes, str | None], ...]
    private: bool
    files: FilesBack | None = None


async def restore(
    settings: Settings,
    kit: Kit,
    *,
    source: Path | None = None,
    enrolment_token: str = "",
    lead: bool = False,
    wants_lead: Callable[[Core], bool] = lambda _: False,
    with_files: bool = True,
) -> Restored:
    """Recovers the vault of ``kit`` on this home, as a new device.

    ``source`` is another device's home, ``enrolment_token`` for a relay that does not have the vault. ``lead``: become
    the Core; else ``wants_lead`` is asked if the Core was not seen lately. ``with_files``: the files of ``source`` come along.

    Raises:
        WrongKit: the kit is another vault's, or outdated.
        UnknownVault: the relay lets nobody in by this kit.
        UsageError, LocalStorage, HomeBusy: the other home cannot be used, or this one is not empty.
        LogDamaged: the relay's device log cannot be read to its end. A home that was not set up is as it was before.
        StoreFailure, LogForked, KeyStoreError.
    """
    if not settings.relay_url and source is not None:
        settings = settings.at_own_relay()
    if not settings.relay_url:
        raise UsageError(
            "no relay was given", hint="Add --relay URL: the kit names the one that the vault had."
        )
    old = find_source_home(source, settings.home) if source is not None else None
    with joining(settings, kit.vault) as home:
        progress = read_progress(home.settings.home)
        if old is not None and progress is None and not home.fresh:
            check_done(home, old.folder)
            old = None
        if progress is not None and progress.phase is Phase.COPYING and old is None:
            raise UsageError(
                f"a restore from {progress.source} was interrupted while it was copied",
                hint="Run the same command again, with --from.",
            )
        if old is not None and (progress is None or begins_anew(home, progress, old.folder)):
            progress = copy_home(home.settings.home, kit, old.folder, resumed=progress is not None)
        journal = home.journal()
        try:
            log = load_log(journal, kit.vault)
            check_kit(kit, log, newer_may_be=True)
            put_back, progress = await _enter(home, kit, journal, log, progress, enrolment_token)
        except DamagedHome:
            journal.close()
            undo_copy(home.settings.home)
            raise
        finally:
            journal.close()
        take_root(home.keys, kit.root)
        taken_over = _take_over(home) if progress is not None else 0
        marked = msgspec.structs.replace(home.settings.config, kit_verified=kit_mark(kit.root))
        home.settings = home.settings.save(marked)
        enrolled = home.finish()
    with opened(enrolled.settings) as device:
        return await _bring_back(
            device,
            kit.root,
            progress,
            lead=lead,
            wants_lead=wants_lead,
            with_files=with_files,
            fresh=enrolled.fresh,
            log_put_back=put_back,
            taken_over=taken_over,
        )


async def _enter(
    home: PendingEnrolment,
    kit: Kit,
    journal: SqliteJournal,
    log: DeviceLog,
    progress: RestoreProgress | None,
    enrolment_token: str,
) -> tuple[int, RestoreProgress | None]:
    """Registers at the relay, and joins the device log. Returns how many of its slots were put back, and the progress."""
    token = token_for(home.settings, home.keys, home.identity)
    async with open_http(home.settings, vault=kit.vault, token=token) as store:
        token = await _registered(home, kit, store, token, enrolment_token, log, progress)
    keep_new(home.keys, home.identity, token)
    details = Details(home.settings.name.value, system_name(), now_ms(), home.identity.id)
    keys = StoreKeys(kit.vault)
    put_back = 0
    async with open_http(home.settings, vault=kit.vault, token=token) as store:
        runner = Runner(RetryingStore(store, policy=RetryPolicy(tries=3)), None)
        if progress is None:
            await _check_log(home, kit, store)
        complete = await runner.run(log_complete(log, journal, keys))
        if log.root is None:
            raise WrongKit(
                "the relay lets this kit in, and has nothing of its vault: it was emptied",
                hint="Bring the vault back from any device's home: `crystal recovery restore --from FOLDER --relay URL`.",
            )
        _check_copy(home, kit, log, progress)
        if not complete:
            if progress is not None:
                # Noted before the repair, after which nothing shows that the relay had lost the vault.
                progress = write_progress(home.settings.home, msgspec.structs.replace(progress, lost=True))
            put_back = await runner.run(put_back_log(log, journal, keys))
        try:
            await runner.run(join(home.identity, kit.root, journal, os.urandom, details, kit.vault))
        except WrongVault as error:
            raise KitOutdated(f"that kit is outdated: {error}") from error
    return put_back, progress


async def _check_log(home: PendingEnrolment, kit: Kit, store: HttpStore) -> None:
    """Raises LogDamaged, with the ways out of it; nothing is set up then."""
    try:
        await home.check_log(store, kit.root)
    except LogDamaged as error:
        error.hint = (
            "Run `crystal repair` on the Core, or on another machine that keeps the root: it puts the damaged entry back. If "
            "none is left, bring the vault back from a copy of any device's home: `crystal recovery restore --from FOLDER`."
        )
        raise
    except UnknownVault:
        return  # an emptied relay; what follows says more


async def _registered(
    home: PendingEnrolment,
    kit: Kit,
    store: HttpStore,
    token: str,
    enrolment_token: str,
    log: DeviceLog,
    progress: RestoreProgress | None,
) -> str:
    """Registers this device. A vault is created there only if its log is here, and by its root in force. Returns the token."""
    try:
        return await register(store, home.keys, kit.root, home.identity, token)
    except UnknownVault as error:
        if isinstance(error.__cause__, RecoveryReplaced):
            raise KitOutdated(
                "that kit is outdated: the vault's root was replaced since it was made, and the relay knows only the new one"
            ) from error
        if home.settings.relay_is_local:
            enrolment_token = own_enrolment_token(home.settings)
        if enrolment_token and log.root is not None:
            _check_copy(home, kit, log, progress)
            return await create_vault(store, home.keys, kit.root, home.identity, token, enrolment_token, log)
        lost = (
            "A relay that is new, or was emptied, needs its enrolment token: --enroll-token -."
            if log.root is not None
            else "If the relay is new or was emptied, bring the vault back from any device's home: --from FOLDER."
        )
        raise UnknownVault(
            "the relay does not know this kit's vault", hint=f"Check the relay's address and the kit. {lost}"
        ) from error


def _check_copy(home: PendingEnrolment, kit: Kit, log: DeviceLog, progress: RestoreProgress | None) -> None:
    """Checks, before anything is written, that the kit's root is in force and that Cores signed what was copied."""
    try:
        check_kit(kit, log)
    except KitOutdated:
        raise
    except WrongKit as error:
        raise WrongKit(
            "that kit is newer than all that is known here of its vault: its root was put in place later",
            hint="Take the home of a device that was in touch with the vault since then, or an older kit.",
        ) from error
    if progress is not None and home.fresh:
        check_memory(home.settings.home, kit, log)


def _take_over(home: PendingEnrolment) -> int:
    """Takes over operations that the other device had not sent, before anything else may use this home."""
    config = msgspec.structs.replace(home.settings.config, vault=home.vault.hex())
    with opened(replace(home.settings, config=config)) as device:
        return adopt_outbox(device.member)


async def _bring_back(
    device: Device,
    root: Root,
    progress: RestoreProgress | None,
    *,
    lead: bool,
    wants_lead: Callable[[Core], bool],
    with_files: bool,
    fresh: bool,
    log_put_back: int,
    taken_over: int,
) -> Restored:
    member = device.member
    mirror_put_back = 0
    lacks: tuple[Lack, ...] = ()
    async with device.online() as store:
        syncer = Syncer(device, store, purpose="crystal recovery restore")
        try:
            if progress is not None:
                _mend_memory(device)
                mirror_put_back = await syncer.run(put_back_mirror(member))
                lacks = tuple(
                    Lack(
                        lack.device,
                        device_name(member, lack.device) if lack.device else None,
                        lack.epoch,
                        lack.sequence,
                    )
                    for lack in missing(member)
                )
                if (lead or progress.lost or _leads_still(device, progress)) and not member.is_core:
                    # What is missing is reported. A device that has more adopts this history and offers the rest again.
                    await syncer.run(claim(member, root, force=True, abandon=True))
            await syncer.round()
            if progress is None and _shall_lead(device, lead, wants_lead, lost=bool(log_put_back)):
                await syncer.claim(root, force=False)
                await syncer.round()
        finally:
            syncer.close()
    files = None
    if progress is not None:
        if with_files:
            files = bring_files(device, Path(progress.source), relay_lost=progress.lost)
        with device.journal.transaction() as transaction:
            transaction.meta_set(META_RESTORED, progress.source.encode())
        end_progress(device.settings.home)
    position = member.replica.position()
    return Restored(
        settings=device.settings,
        vault=member.vault,
        device=member.device_id,
        fresh=fresh,
        from_home=progress is not None,
        relay_lost=bool(log_put_back) or (progress is not None and progress.lost),
        log_put_back=log_put_back,
        mirror_put_back=mirror_put_back,
        taken_over=taken_over,
        is_core=member.is_core,
        epoch=position.epoch,
        sequence=position.sequence,
        digest=member.replica.digest().to_bytes(),
        core=_core(device),
        lacks=lacks,
        others=tuple(
            (info.device, device_name(member, info.device))
            for info in member.log.active()
            if info.device != member.device_id
        ),
        private=read_privacy(device.journal).on,
        files=files,
    )


def _leads_still(device: Device, progress: RestoreProgress) -> bool:
    """Whether the device whose home was copied is still the Core by the log."""
    lead = device.member.log.lead
    return lead is not None and lead.claim.hex() == progress.led


def _mend_memory(device: Device) -> None:
    """Rebuilds rows that differ from the log, as after silent disk errors."""
    if not rebuild_pending(device.member) and not verify(device).ok:
        mark_rebuild(device.member, None)


def _shall_lead(device: Device, lead: bool, wants_lead: Callable[[Core], bool], *, lost: bool) -> bool:
    """Whether to become the Core: if asked for, else if the Core may be gone and the person wants it."""
    core = _core(device)
    if device.member.is_core or core is None:
        frozen = device.member.log.lead is not None and device.member.log.lead.is_freeze
        return lead and frozen
    return lead or ((lost or not core.lately(now_ms())) and wants_lead(core))


def _core(device: Device) -> Core | None:
    member = device.member
    lead = member.log.lead
    if lead is None or lead.is_freeze:
        return None
    seen = max((cursor.told_at for cursor in seen_cursors(member) if cursor.device == lead.device), default=0)
    return Core(lead.device, device_name(member, lead.device), seen)
