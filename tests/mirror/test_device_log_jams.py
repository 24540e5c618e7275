"""What must keep nobody from writing the device log: junk of an active device, and a branch that the relay has dropped."""

import pytest

from crystal_crypto.entry import Channel, Frame, Header, Kind, seal
from crystal_mirror.devicelog.damage import unread_place
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.errors import LogDamaged, LogForked
from crystal_mirror.membership.administration import rename, revoke
from crystal_mirror.membership.founding import read_whole
from crystal_mirror.membership.member import Member
from crystal_mirror.store_keys import StoreKeys
from crystal_node.device.journal import SqliteJournal
from tests.mirror.household import Household


def junk(maker: Member) -> bytes:
    """An entry for the next slot, signed by an active device, that follows nothing."""
    header = Header(
        kind=Kind.LOG,
        channel=Channel.DEVLOG,
        vault=maker.vault,
        sender=maker.device_id,
        incarnation=bytes(8),
        epoch=0,
        generation=maker.generation_key.number,
        log_head=b"x" * 32,
        sequence=maker.log.next_slot,
        previous=b"y" * 32,
    )
    return seal(
        header,
        [Frame(b"junk")],
        key=maker.generation_key,
        signer=maker.identity.signing,
        salt=maker.salt(),
    )


def read_as_newcomer(home: Household) -> None:
    vault = home.core.vault
    home.store.run(read_whole(DeviceLog(vault), SqliteJournal.open(":memory:"), StoreKeys(vault)))


def test_a_device_that_writes_junk_is_revoked_all_the_same() -> None:
    home = Household()
    thief = home.add("thief")
    home.sync(home.core, thief)
    home.store[thief.keys.log(thief.log.next_slot)] = junk(thief)
    home.sync(home.core)
    assert unread_place(home.core.log, home.core.journal) == 4
    with pytest.raises(LogDamaged):
        read_as_newcomer(home)
    home.store.run(revoke(home.core, thief.device_id, now_ms=3))
    assert not home.core.log.is_active(thief.device_id)
    read_as_newcomer(home)
    assert home.core.log.is_active(home.add("late").device_id)


def test_a_branch_that_the_relay_has_dropped_is_not_put_back_beside_another_one() -> None:
    home = Household()
    laptop = home.by_kit("laptop")
    home.sync(home.core, laptop)
    first = home.core.log.next_slot
    for name in ("one", "two"):
        home.store.run(rename(laptop, laptop.device_id, name, now_ms=3))
    for slot in (first, first + 1):
        del home.store[laptop.keys.log(slot)]
    home.add("phone")
    before = dict(home.store)
    with pytest.raises(LogForked):
        home.sync(laptop)
    assert dict(home.store) == before
    home.add("tablet")
