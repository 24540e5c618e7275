"""An ex-device in league with the relay: it has its old keys, its old token counts, and it writes wherever it wants."""

from typing import Protocol

import pytest

from crystal_crypto.entry import Kind, parse
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.log import ROOT_SENDER
from crystal_mirror.devicelog.records import (
    AddRecord,
    GenerationRecord,
    GrantRecord,
    LeadRecord,
    NameRecord,
    Record,
    RevokeRecord,
    RootRecord,
)
from crystal_mirror.membership.authority import Authority
from crystal_mirror.notices import Notice
from crystal_mirror.requests import StoreFailure
from crystal_mirror.types import EntryState, Origin, Position
from tests.mirror.support import seeded
from tests.sim.administering import call, go_on_regardless
from tests.sim.device import Home
from tests.sim.members_script import MembersStage
from tests.sim.thief import Thief, member_of, unmoved

BUNDLE = bytes(114)


class Records(Protocol):
    """Where there is a phone whose keys somebody has."""

    thief: Thief
    phone: Home
    laptop: Home


class Scene(MembersStage):
    """The phone had stored two entries, then it was revoked; whoever has it has its keys and its disk."""

    def __init__(self, name: str = "attack") -> None:
        super().__init__(name)
        self.write(self.phone)
        self.sync(self.phone, self.core, self.phone)
        self.before = set(self.world.store.objects)
        disk = self.phone.backup()
        self.out(self.phone)
        self.phone.restore(disk)
        go_on_regardless(self.world, self.phone)
        self.thief = Thief(self.world, self.phone.identity)
        self.sync(self.laptop, self.core, self.laptop)

    @property
    def stream(self) -> Origin:
        """The last place of the phone's stream that counts."""
        info = self.thief.log().member(self.phone.identity.id)
        assert info is not None
        assert info.revoked is not None
        (incarnation, last), *more = info.revoked.cutoffs.items()
        assert not more, "it had one stream"
        return Origin(self.phone.identity.id, incarnation, last)

    def strike(self, attack: object) -> set[str]:
        """Runs an attack that must move nobody, then lets everybody work on, and a newcomer join."""
        assert callable(attack)
        raised = unmoved(self.world, attack)
        self.write(self.laptop)
        self.sync(self.laptop, self.core, self.laptop)
        self.world.agree()
        return raised


def test_an_ex_device_reads_nothing_that_is_written_after_it_was_out() -> None:
    scene = Scene()
    world = scene.world
    since = set(world.store.objects)
    for home in (scene.laptop, scene.core):
        scene.write(home)
    scene.act(
        scene.core, lambda member: call(member, scene.laptop.identity.id, "a name that is nobody's business")
    )
    scene.sync(scene.laptop, scene.core, scene.laptop)
    cursors = world.store.keys("cursor")
    new = [
        *(set(world.store.objects) - since),
        *(key for key in cursors if scene.phone.identity.id.hex() not in key),
    ]
    kinds = {parse(world.store.objects[key]).header.kind for key in new}
    assert kinds == {Kind.LOG, Kind.OFFER, Kind.BATCH, Kind.CURSOR}
    assert not [key for key in new if scene.thief.reads(key)]
    assert [key for key in scene.before if scene.thief.reads(key)], "what it had, it has"
    world.agree()


def test_an_ex_device_that_goes_on_in_its_stream_is_held_and_named() -> None:
    scene = Scene()
    last = scene.stream

    def attack() -> None:
        for step in (1, 2):
            scene.thief.offer(last._replace(sequence=last.sequence + step))

    assert Notice.HELD_REVOKED in scene.strike(attack)


def test_an_ex_device_that_dates_its_entries_back_to_before_it_was_out_is_held() -> None:
    scene = Scene()
    last = scene.stream
    old_head = parse(scene.world.store.objects[scene.thief.keys.conversation(*last)]).header.log_head

    def attack() -> None:
        scene.thief.offer(last._replace(sequence=last.sequence + 1), log_head=old_head)

    assert Notice.HELD_REVOKED in scene.strike(attack)


def test_an_ex_device_that_writes_its_old_entries_anew_changes_nothing() -> None:
    scene = Scene()
    last = scene.stream

    def attack() -> None:
        for sequence in range(last.sequence + 1):
            scene.thief.offer(last._replace(sequence=sequence))

    scene.strike(attack)


def test_an_ex_device_that_begins_another_stream_is_held() -> None:
    scene = Scene()
    fresh = Origin(scene.phone.identity.id, b"another1", 0)

    def attack() -> None:
        scene.thief.offer(fresh)
        scene.thief.offer(fresh._replace(sequence=1))

    assert Notice.HELD_REVOKED in scene.strike(attack)


@pytest.mark.parametrize("whose", ["an entry of its own that counts", "the laptop's next entry"])
def test_an_ex_device_that_gives_its_entries_other_names_is_held(whose: str) -> None:
    scene = Scene()
    last = scene.stream
    laptop = scene.laptop.open()
    assert laptop is not None
    stream = laptop.journal.stream()
    assert stream is not None
    theirs = Origin(laptop.device_id, stream.incarnation, stream.sequence)
    name = last if whose.startswith("an entry") else theirs

    def attack() -> None:
        scene.thief.offer(last._replace(sequence=last.sequence + 1), named=name)
        scene.thief.offer(Origin(scene.phone.identity.id, b"another2", 0), named=name)

    assert Notice.HELD_REVOKED in scene.strike(attack)


@pytest.mark.parametrize("sender", ["itself", "the Core"])
@pytest.mark.parametrize("kind", [Kind.BATCH, Kind.SEAL])
def test_an_ex_device_that_poses_as_core_is_stepped_over(kind: Kind, sender: str) -> None:
    scene = Scene()

    def attack() -> None:
        position: Position = member_of(scene.core).replica.position()
        scene.thief.batch(position, None if sender == "itself" else scene.core.identity.id, kind=kind)

    scene.strike(attack)
    assert len(member_of(scene.core).replica.kept(EntryState.VOID)) == 1


def records(scene: Records) -> dict[str, Record]:
    """One of each kind, as it would have to be if the phone could say such things."""
    log = scene.thief.log()
    phone, laptop = scene.phone.identity.id, scene.laptop.identity.id
    accomplice = DeviceIdentity.generate(seeded("accomplice"))
    after = log.generation + 1
    others = tuple((device, BUNDLE) for device in sorted(info.device for info in log.active()))
    assert log.lead is not None
    key = accomplice.signing.public.to_bytes()
    return {
        "adds an accomplice": AddRecord(
            accomplice.id, key, accomplice.exchange.public.to_bytes(), True, True, log.generation, BUNDLE
        ),
        "adds itself again": AddRecord(
            phone,
            scene.phone.identity.signing.public.to_bytes(),
            scene.phone.identity.exchange.public.to_bytes(),
            True,
            True,
            log.generation,
            BUNDLE,
        ),
        "revokes the laptop": RevokeRecord(
            laptop, (), after, BUNDLE, tuple(pair for pair in others if pair[0] != laptop)
        ),
        "renews the keys": GenerationRecord(after, BUNDLE, others),
        "takes the lead": LeadRecord(log.lead.epoch + 1, phone, bytes(16)),
        "gives the laptop the lead": LeadRecord(log.lead.epoch + 1, laptop, bytes(16)),
        "grants itself the lead": GrantRecord(phone),
        "grants the laptop the lead": GrantRecord(laptop),
        "replaces the root": RootRecord(
            key, accomplice.exchange.public.to_bytes(), phone, log.generation, BUNDLE
        ),
        "renames itself": NameRecord(phone),
        "renames the laptop": NameRecord(laptop),
    }


@pytest.mark.parametrize("posing", ["as itself", "as the Core", "as the root"])
@pytest.mark.parametrize("says", sorted(records(Scene())))
def test_an_ex_device_that_signs_the_device_log_is_stepped_over(says: str, posing: str) -> None:
    scene = Scene()
    who = {
        "as itself": scene.phone.identity.id,
        "as the Core": scene.core.identity.id,
        "as the root": ROOT_SENDER,
    }
    record = records(scene)[says]

    def attack() -> None:
        scene.thief.append(record, Authority(who[posing], scene.phone.identity.signing))

    scene.strike(attack)
    member = scene.core.open()
    assert member is not None
    assert member.log.void_slots == 1


def test_an_ex_device_tells_nobody_where_it_stands_nor_where_others_do() -> None:
    scene = Scene()

    def attack() -> None:
        for home in (scene.phone, scene.core, scene.laptop):
            scene.thief.cursor(
                home.identity.id, b"\x97\x01\x00" + b"\xc4\x20" + bytes(32) + b"\x00\x00\xc2\xa0"
            )

    scene.strike(attack)


def test_an_ex_device_whose_token_is_gone_is_not_even_answered() -> None:
    scene = Scene()
    scene.world.store.refused.add(scene.phone.name)
    before = dict(scene.world.store.objects)
    scene.world.run_round(scene.phone)
    assert scene.phone.error.startswith(StoreFailure.__name__)
    assert scene.world.store.objects == before


def test_an_ex_device_that_hears_of_it_stops_by_itself() -> None:
    scene = Scene()
    del scene.world.store.hidden_from[scene.phone.name]
    before = dict(scene.world.store.objects)
    assert not scene.world.run_round(scene.phone)
    assert scene.phone.error.startswith("Revoked")
    assert scene.world.store.objects == before
