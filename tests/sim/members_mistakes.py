"""Old mistakes with keys and revocations, to be put back on purpose: each undoes one rule, and the simulator has to notice.

``FOUND_BY`` names where each is looked for first: a script of ``members_script``, a plot below, or a random world.
"""

# pyright: reportPrivateUsage=false
# Mistakes are made in the middle of things.

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from crystal_crypto.entry import parse
from crystal_crypto.errors import CryptoError
from crystal_crypto.hierarchy import GenerationKey
from crystal_crypto.identity import VerifyKey
from crystal_mirror import round as sync
from crystal_mirror.devicelog import sync as logsync
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.devicelog.log import ROOT_SENDER, DeviceLog, Revocation
from crystal_mirror.devicelog.records import LeadRecord, NameRecord, Record, RevokeRecord
from crystal_mirror.membership import administration, authority
from crystal_mirror.membership.administration import revoke
from crystal_mirror.membership.authority import Authority
from crystal_mirror.membership.member import Member
from crystal_mirror.ports import OutboxState
from crystal_mirror.replication import publish
from crystal_mirror.requests import Flow, PutNew
from crystal_mirror.types import EntryState
from tests.sim.administering import NOW_MS, go_on_regardless
from tests.sim.members_script import MembersStage
from tests.sim.test_attacks import Scene
from tests.sim.test_attacks_core import Hostile
from tests.sim.test_attacks_root import Stolen
from tests.sim.thief import member_of, unmoved

Mistake = Callable[[], AbstractContextManager[Any]]


def _generations(
    change: Callable[[Member, dict[str, Any]], AbstractContextManager[Any]],
) -> AbstractContextManager[Any]:
    """Patches the sealing of a new generation: ``change`` may alter the arguments, and holds while it is done."""
    honest = administration._begin_generation

    def begin(member: Member, *rest: Any, **named: Any) -> bytes:
        with change(member, named):
            return honest(member, *rest, **named)

    return patch.object(administration, "_begin_generation", begin)


def a_revocation_begins_no_new_key() -> AbstractContextManager[Any]:
    """The generation counts up, and its key is the one before."""

    def same(member: Member, _named: dict[str, Any]) -> AbstractContextManager[Any]:
        before = member.generation_key.secret

        def key(number: int, _fresh: bytes) -> GenerationKey:
            return GenerationKey(number, before)

        replaced: AbstractContextManager[Any] = patch.object(administration, "GenerationKey", key)
        return replaced

    return _generations(same)


@contextmanager
def the_new_key_is_sealed_to_the_revoked_device_too() -> Generator[None]:
    """Everybody who was active before the revocation gets the keys after it."""
    honest = DeviceLog._for_everybody

    def everybody(self: DeviceLog, bundles: Any, *, besides: bytes = b"") -> bool:
        return honest(self, bundles) or honest(self, bundles, besides=besides)

    @contextmanager
    def included(_member: Member, named: dict[str, Any]) -> Generator[None]:
        named["besides"] = b""
        yield

    with patch.object(DeviceLog, "_for_everybody", everybody), _generations(included):
        yield


def a_revoked_device_may_sign() -> AbstractContextManager[Any]:
    """Whether the sender of a log entry is still a member is not asked."""
    honest = DeviceLog._judge

    def judge(self: DeviceLog, data: bytes) -> Any:
        try:
            info = self._members.get(parse(data).header.sender)
        except CryptoError:
            info = None
        if info is None or info.revoked is None:
            return honest(self, data)
        self._members[info.device] = replace(info, revoked=None)
        try:
            return honest(self, data)
        finally:
            self._members[info.device] = info

    return patch.object(DeviceLog, "_judge", judge)


def cutoffs_are_ignored() -> AbstractContextManager[Any]:
    """What a revoked device wrote counts, whenever it was written."""

    def counts(_self: Revocation, _incarnation: bytes, _sequence: int) -> bool:
        return True

    return patch.object(Revocation, "counts", counts)


def pending_entries_are_sent_as_they_were_sealed() -> AbstractContextManager[Any]:
    """What was accepted under the generation before goes out under it."""

    def push(member: Member) -> Flow[int]:
        while (row := member.journal.first_row(OutboxState.PENDING)) is not None:
            yield PutNew(
                member.keys.conversation(member.device_id, row.incarnation, row.sequence), row.sealed
            )
            with member.journal.transaction() as transaction:
                transaction.set_row_state(row.incarnation, row.sequence, OutboxState.STORED)
        return 0

    return patch.object(sync, "push", push)


class _AnyOf:
    """In the place of a key: a signature by one of several."""

    def __init__(self, keys: list[VerifyKey]) -> None:
        self._keys = keys

    def verify(self, signature: bytes, message: bytes) -> None:
        for key in self._keys[:-1]:
            with suppress(CryptoError):
                key.verify(signature, message)
                return
        self._keys[-1].verify(signature, message)


def an_old_root_still_signs() -> AbstractContextManager[Any]:
    """Every root that the vault ever had has power."""
    honest = DeviceLog._authority

    def authority(self: DeviceLog, sender: bytes, record: Record) -> Any:
        if sender == ROOT_SENDER and self.root is not None:
            return _AnyOf([VerifyKey.from_bytes(raw) for raw in sorted(self._admins)])
        return honest(self, sender, record)

    return patch.object(DeviceLog, "_authority", authority)


def any_key_in_a_bundle_is_believed() -> AbstractContextManager[Any]:
    """Whether the entry that began the generation opens with the key is not tried."""

    def fits(_self: KeyRing, _key: GenerationKey) -> bool:
        return True

    return patch.object(KeyRing, "_fits", fits)


@contextmanager
def the_core_can_be_revoked() -> Generator[None]:
    """Its epoch has no end then."""
    allowed, append = DeviceLog._allowed, logsync.append

    def unless_it_leads(self: DeviceLog, record: Record) -> bool:
        epoch = self._last_epoch
        self._last_epoch = 0 if isinstance(record, RevokeRecord) else epoch
        try:
            return allowed(self, record)
        finally:
            self._last_epoch = epoch

    def append_blindly(log: DeviceLog, journal: Any, keys: Any, build: Any) -> Flow[bool]:
        def blind(log: DeviceLog) -> bytes | None:
            epoch, log._last_epoch = log._last_epoch, 0
            try:
                sealed: bytes | None = build(log)
                return sealed
            finally:
                log._last_epoch = epoch

        return append(log, journal, keys, blind if build.__qualname__.startswith("revoke.") else build)

    with (
        patch.object(DeviceLog, "_allowed", unless_it_leads),
        patch.object(administration, "append", append_blindly),
    ):
        yield


def keys_for_some_of_the_devices_are_enough() -> AbstractContextManager[Any]:
    """A device may be left out of a new generation, and nobody notices."""

    def some(self: DeviceLog, bundles: Any, *, besides: bytes = b"") -> bool:
        return {device for device, _ in bundles} <= {info.device for info in self.active()} - {besides}

    return patch.object(DeviceLog, "_for_everybody", some)


@contextmanager
def the_key_before_is_not_passed_on() -> Generator[None]:
    """A newcomer gets the newest key, and nothing older follows from it."""
    honest = authority.seal_record

    def seal(*values: Any, older: Any = (), **named: Any) -> bytes:
        return honest(*values, **named)

    with patch.object(administration, "seal_record", seal):
        yield


@contextmanager
def a_waiting_batch_is_published_as_it_was_sealed() -> Generator[None]:
    """The Core's own outbox is forgotten: a batch of before the revocation goes out under the old key."""
    honest = publish.publish

    def as_it_is(member: Member) -> Flow[publish.Published]:
        for entry in member.replica.kept(EntryState.UNSENT):
            yield PutNew(member.keys.mirror(entry.epoch, entry.sequence), entry.data)
        return (yield from honest(member))

    with patch.object(sync, "publish", as_it_is):
        yield


# Plots: short runs in which somebody has a device's keys or a root.


def ex_device_signs() -> None:
    scene = Scene()
    member = member_of(scene.core)
    assert member.log.lead is not None
    epoch = member.log.lead.epoch
    phone = scene.phone.identity.id

    def attack() -> None:
        scene.thief.append(NameRecord(phone))
        scene.thief.append(LeadRecord(epoch + 1, phone, bytes(16)))

    unmoved(scene.world, attack)


def old_root_signs() -> None:
    stolen = Stolen(rotated=True)
    record = NameRecord(stolen.laptop.identity.id)
    unmoved(stolen.world, lambda: stolen.thief.append(record, Authority.of_root(stolen.stolen)))


def core_leaves_one_out() -> None:
    hostile = Hostile()
    phone = hostile.phone.identity.id
    unmoved(
        hostile.world,
        lambda: hostile.seal(lambda _log, _key, bundles: tuple(b for b in bundles if b[0] != phone)),
    )
    hostile.world.agree()


def core_gives_one_another_key() -> None:
    from tests.sim.test_attacks_core import test_a_core_that_gives_one_device_another_key_is_not_believed

    test_a_core_that_gives_one_device_another_key_is_not_believed()


def core_is_put_out() -> None:
    """Somebody tries to revoke the Core while it leads; should that go, the Core goes on all the same."""
    stage = MembersStage("put out")
    world, core, laptop = stage.world, stage.core, stage.laptop
    kit, device = world.root, core.identity.id
    new = world.new_root()
    laptop.roots.append(new)
    stage.act(laptop, lambda member: administration.rotate_root(member, kit, new, now_ms=NOW_MS))
    world.run(laptop, lambda member: revoke(member, device, now_ms=NOW_MS))
    if core in world.former:
        go_on_regardless(world, core)
        stage.write(core)
        stage.sync(core, core, laptop)
    world.agree()


def batch_waits() -> None:
    from tests.sim.test_members import (
        test_a_batch_that_waited_while_a_device_was_revoked_is_not_for_that_device as waits,
    )

    waits()


PLOTS: dict[str, Callable[[], None]] = {
    plot.__name__.replace("_", " "): plot
    for plot in (
        ex_device_signs,
        old_root_signs,
        core_leaves_one_out,
        core_gives_one_another_key,
        core_is_put_out,
        batch_waits,
    )
}

MISTAKES: dict[str, Mistake] = {
    mistake.__name__.replace("_", " "): mistake
    for mistake in (
        a_revocation_begins_no_new_key,
        the_new_key_is_sealed_to_the_revoked_device_too,
        a_revoked_device_may_sign,
        cutoffs_are_ignored,
        pending_entries_are_sent_as_they_were_sealed,
        an_old_root_still_signs,
        any_key_in_a_bundle_is_believed,
        the_core_can_be_revoked,
        keys_for_some_of_the_devices_are_enough,
        the_key_before_is_not_passed_on,
        a_waiting_batch_is_published_as_it_was_sealed,
    )
}

FOUND_BY: dict[str, str] = {
    "a revocation begins no new key": "revoked",
    "the new key is sealed to the revoked device too": "revoked",
    "a revoked device may sign": "ex device signs",
    "cutoffs are ignored": "dropped",
    "pending entries are sent as they were sealed": "revoked",
    "an old root still signs": "old root signs",
    "any key in a bundle is believed": "core gives one another key",
    "the core can be revoked": "core is put out",
    "keys for some of the devices are enough": "core leaves one out",
    "the key before is not passed on": "added",
    "a waiting batch is published as it was sealed": "batch waits",
}
