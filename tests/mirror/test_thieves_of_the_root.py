"""Whoever stole the root brings in machines that call themselves ones without it; putting these out replaces the root all the
same."""

import pytest

from crystal_crypto.bundle import seal_bundle
from crystal_crypto.entry import parse
from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.records import DETAIL_CHARS_MAX, AddRecord, Details, LeadRecord, NameRecord
from crystal_mirror.devicelog.sync import append
from crystal_mirror.errors import RootHeld
from crystal_mirror.membership.administration import may_have_root, revoke, rotate_root
from crystal_mirror.membership.authority import Authority, seal_record
from crystal_mirror.membership.cursors import put_cursor, read_cursors, says_root
from crystal_mirror.membership.status import details_of, device_name
from crystal_mirror.store_keys import StoreKeys
from crystal_node.device.journal import SqliteJournal
from tests.mirror.household import Household
from tests.mirror.support import new_device, new_root


@pytest.fixture
def home() -> Household:
    home = Household()
    home.laptop = home.add("laptop")
    home.sync(home.core, home.laptop)
    return home


def by_stealth(home: Household, name: str) -> DeviceIdentity:
    """By the stolen root a machine is added that says it came without the root, and by the Core's hand."""
    thief = new_device(name)

    def build(log: DeviceLog) -> bytes | None:
        ring = KeyRing.of_root(home.root, log)
        bundle = seal_bundle(
            thief.exchange.public,
            generation=ring.current(),
            secret=ring.secret,
            vault=log.vault,
            recipient_id=thief.id,
            log_head=log.head,
        )
        keys = thief.signing.public.to_bytes(), thief.exchange.public.to_bytes()
        return seal_record(
            log,
            AddRecord(thief.id, *keys, True, False, log.generation, bundle),
            by=Authority.of_root(home.root),
            key=ring.current(),
            salt=bytes(24),
            details=Details("laptop", "Linux", 5, home.core.device_id),
        )

    log, journal = DeviceLog(home.core.vault), SqliteJournal.open(":memory:")
    assert home.store.run(append(log, journal, StoreKeys(log.vault), build))
    home.read(home.core, home.laptop)
    return thief


def test_a_machine_that_a_thief_of_the_root_took_in_is_out_only_once_the_root_is_another(
    home: Household,
) -> None:
    thief = by_stealth(home, "thief")
    home.sync(home.core)
    with pytest.raises(RootHeld):
        home.store.run(revoke(home.core, thief.id, now_ms=3))
    home.store.run(rotate_root(home.core, home.root, new_root("fresh"), now_ms=3))
    assert home.store.run(revoke(home.core, thief.id, now_ms=3)).fresh


def test_a_member_that_a_stolen_root_gave_the_lead_is_out_only_once_the_root_is_another(
    home: Household,
) -> None:
    log = home.laptop.log
    lead = LeadRecord(2, home.laptop.device_id, bytes(16))
    sealed = seal_record(
        log, lead, by=Authority.of_root(home.root), key=home.laptop.generation_key, salt=bytes(24)
    )
    assert not may_have_root(home.core, home.laptop.device_id)
    home.store[home.laptop.keys.log(log.next_slot)] = sealed
    home.read(home.core)
    assert may_have_root(home.core, home.laptop.device_id)


def test_who_took_a_device_in_with_the_root_itself_knows_that_it_did_not_give_it(home: Household) -> None:
    keeper = home.by_kit("keeper")
    home.read(home.core)
    guest = home.add("guest", by=keeper)
    home.read(home.core)
    assert may_have_root(home.core, guest.device_id), "another device has only the signer's word"
    assert not may_have_root(keeper, guest.device_id)
    assert may_have_root(home.core, keeper.device_id)


def test_a_member_that_got_the_root_later_says_so(home: Household) -> None:
    """The log does not tell: it was a member before it was given the code."""
    other: Root = new_root("another")
    home.laptop.root = home.root
    home.store.run(put_cursor(home.laptop))
    home.store.run(read_cursors(home.core))
    assert not may_have_root(home.core, home.laptop.device_id)
    assert says_root(home.core, home.laptop.device_id)
    home.store.run(rotate_root(home.core, home.root, other, now_ms=3))
    assert not says_root(home.core, home.laptop.device_id), "what it keeps is not in force any more"


def test_a_members_endless_name_is_cut_where_it_is_read(home: Household) -> None:
    sealed = seal_record(
        home.laptop.log,
        NameRecord(home.laptop.device_id),
        by=Authority.of_device(home.laptop),
        key=home.laptop.generation_key,
        salt=home.laptop.salt(),
        details=Details("n" * 1_000_000, "s" * 1_000_000, 3, home.laptop.device_id),
    )
    home.store[home.laptop.keys.log(home.laptop.log.next_slot)] = sealed
    home.read(home.core)
    found = details_of(home.core, parse(sealed))
    assert found is not None
    assert (len(found.name), len(found.system), found.at) == (DETAIL_CHARS_MAX, DETAIL_CHARS_MAX, 3)
    assert device_name(home.core, home.laptop.device_id) == "n" * DETAIL_CHARS_MAX
