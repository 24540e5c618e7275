"""Newcomers that bring keys which are none, or somebody else's."""

from collections.abc import Callable

import pytest

from crystal_crypto.errors import Malformed
from crystal_crypto.identity import DeviceIdentity, ExchangePublic
from crystal_mirror.devicelog.log import ROOT_SENDER
from crystal_mirror.devicelog.records import AddRecord
from crystal_mirror.membership.administration import NewDevice, add_device
from crystal_mirror.membership.authority import Authority
from tests.mirror.support import seeded
from tests.sim.administering import NOW_MS, put_out, renew
from tests.sim.members_script import MembersStage
from tests.sim.thief import Thief, member_of, unmoved

LOW_ORDER = {
    "zero": bytes(32),
    "one": b"\x01" + bytes(31),
    "of order eight": bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    "minus one": bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
}


def stranger() -> DeviceIdentity:
    return DeviceIdentity.generate(seeded("stranger"))


def refused(stage: MembersStage, newcomer: NewDevice) -> str:
    """The Core is asked to add it. Returns how that ends; nothing was written."""
    before = stage.world.store.keys("devlog")
    stage.world.run(
        stage.core, lambda member: add_device(member, newcomer, name="x", system="y", now_ms=NOW_MS)
    )
    assert stage.world.store.keys("devlog") == before
    return stage.core.error.partition(":")[0]


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_newcomer_whose_exchange_key_is_of_low_order_is_refused(point: str) -> None:
    stage = MembersStage("newcomer")
    identity = stranger()
    newcomer = NewDevice(identity.id, identity.signing.public, ExchangePublic.from_bytes(LOW_ORDER[point]))
    assert refused(stage, newcomer) == Malformed.__name__
    stage.world.agree()


WHOSE: dict[str, Callable[[DeviceIdentity, DeviceIdentity], NewDevice]] = {
    "signing key": lambda one, other: NewDevice(one.id, other.signing.public, one.exchange.public),
    "exchange key": lambda one, other: NewDevice(one.id, one.signing.public, other.exchange.public),
    "keys": lambda one, other: NewDevice(one.id, other.signing.public, other.exchange.public),
    "id": lambda one, other: NewDevice(other.id, one.signing.public, one.exchange.public),
}


@pytest.mark.parametrize("what", WHOSE)
@pytest.mark.parametrize("whose", ["an active device's", "a revoked device's"])
def test_a_newcomer_with_another_devices_identity_is_refused(whose: str, what: str) -> None:
    stage = MembersStage("newcomer")
    if whose == "a revoked device's":
        stage.out(stage.phone)
    newcomer = WHOSE[what](stranger(), stage.phone.identity)
    assert refused(stage, newcomer) in ("Malformed", "Revoked")
    stage.world.agree()


def test_a_newcomer_that_goes_by_the_roots_name_is_refused() -> None:
    stage = MembersStage("newcomer")
    identity = stranger()
    newcomer = NewDevice(ROOT_SENDER, identity.signing.public, identity.exchange.public)
    assert refused(stage, newcomer) == Malformed.__name__


def test_a_device_that_a_hostile_core_added_with_no_usable_key_keeps_new_keys_from_nobody() -> None:
    stage = MembersStage("newcomer")
    world, identity = stage.world, stranger()
    thief = Thief(world, stage.core.identity)
    record = AddRecord(
        identity.id, identity.signing.public.to_bytes(), LOW_ORDER["zero"], False, False, 1, bytes(114)
    )
    thief.append(record, Authority.of_device(member_of(stage.core)))
    stage.sync(stage.core, stage.laptop, stage.phone)
    kit, phone = world.root, stage.phone.identity.id
    stage.act(stage.core, lambda member: renew(member, kit))
    stage.act(stage.core, lambda member: put_out(member, phone, kit, kit))
    assert member_of(stage.core).log.generation == 3
    world.agree()


def test_who_takes_anothers_id_before_it_is_added_shuts_it_out_and_gets_nothing_of_it() -> None:
    """Ids are random and seen by the relay alone before. Should one be taken, its owner is told, and comes with another."""
    stage = MembersStage("newcomer")
    world = stage.world
    watch = world.add_home("watch", has_kit=False)
    squatter = stranger()
    taken = NewDevice(watch.identity.id, squatter.signing.public, squatter.exchange.public)
    stage.act(stage.core, lambda member: add_device(member, taken, name="x", system="y", now_ms=NOW_MS))
    real = NewDevice(watch.identity.id, watch.identity.signing.public, watch.identity.exchange.public)
    world.homes.remove(watch)
    unmoved(world, lambda: refused(stage, real))
    assert refused(stage, real) == Malformed.__name__
