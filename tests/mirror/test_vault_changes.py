"""News: every device shows each change of who belongs to the vault once, and nobody can hide one by naming another device."""

import pytest

from crystal_core.replica import Replica
from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.records import Details, GrantRecord, LeadRecord, Record
from crystal_mirror.devicelog.sync import append, read_log
from crystal_mirror.errors import Revoked
from crystal_mirror.membership.administration import (
    NewDevice,
    add_device,
    grant_lead,
    rename,
    renew_generation,
    revoke,
    rotate_root,
)
from crystal_mirror.membership.authority import Authority, seal_record
from crystal_mirror.membership.changes import ChangeKind, VaultChange, mark_shown, shown_slot, vault_changes
from crystal_mirror.membership.founding import found, join
from crystal_mirror.membership.member import Member, load_keys, load_log
from crystal_mirror.replication.claim import claim
from crystal_mirror.round import sync_round
from crystal_mirror.store_keys import StoreKeys
from crystal_node.device.journal import SqliteJournal
from tests.mirror.support import Objects, new_device, new_root, seeded


class Household:
    """A Core that holds the root, a tablet that joined with the code, and a phone that the Core added."""

    def __init__(self) -> None:
        self.store = Objects()
        self.root: Root = new_root()
        self.core = self.joined("core", founding=True)
        self.tablet = self.joined("tablet")
        self.phone = self.invited("phone")
        self.sync(self.core, self.tablet, self.phone)

    def joined(self, name: str, *, founding: bool = False) -> Member:
        identity, journal = new_device(name), SqliteJournal.open(":memory:")
        details = Details(name, "Linux", 1000, identity.id)
        self.store.run((found if founding else join)(identity, self.root, journal, seeded(name), details))
        return self.opened(identity, journal, name, self.root)

    def invited(self, name: str) -> Member:
        identity, journal = new_device(name), SqliteJournal.open(":memory:")
        newcomer = NewDevice(identity.id, identity.signing.public, identity.exchange.public)
        self.store.run(add_device(self.core, newcomer, name=name, system="Linux", now_ms=2000))
        for slot, data, void in self.core.journal.log_entries():
            with journal.transaction() as transaction:
                transaction.keep_log_entry(slot, data, void=void)
        return self.opened(identity, journal, name, None)

    def opened(
        self, identity: DeviceIdentity, journal: SqliteJournal, name: str, root: Root | None
    ) -> Member:
        secret = load_keys(identity, load_log(journal, self.root.vault))[1]
        replica = Replica.open(":memory:", secret)
        return Member.open(identity, self.root.vault, journal, replica, seeded(name + "/run"), root)

    def sync(self, *members: Member) -> None:
        for member in members:
            self.store.run(sync_round(member, "test/1"))

    def by_stealth(self, record: Record) -> None:
        """Whoever stole the root, and has a member's keys as well, writes this into the log at a machine of its own."""

        def build(log: DeviceLog) -> bytes | None:
            key = self.core.generation_key
            return seal_record(log, record, by=Authority.of_root(self.root), key=key, salt=bytes(24))

        log, journal = DeviceLog(self.root.vault), SqliteJournal.open(":memory:")
        assert self.store.run(append(log, journal, StoreKeys(log.vault), build))


@pytest.fixture
def household() -> Household:
    return Household()


def told(found: list[VaultChange]) -> list[tuple[str, str | None, str | None]]:
    return [(piece.kind.value, piece.name, piece.by_name) for piece in found]


def shown(member: Member) -> list[VaultChange]:
    """What a person who looks is shown, and counts as shown from then on."""
    found = vault_changes(member)
    mark_shown(member.journal, member.log.next_slot - 1)
    return found


def test_who_was_added_and_by_which_is_news_to_all_others_once(household: Household) -> None:
    added = [("added", "tablet", "tablet"), ("added", "phone", "core")]
    assert told(shown(household.core)) == added[:1], "the phone was the Core's own doing"
    assert told(shown(household.tablet)) == added[1:]
    for member in (household.core, household.tablet):
        assert shown(member) == []


def test_a_newcomer_is_told_what_came_after_it_and_nothing_before(household: Household) -> None:
    assert shown(household.phone) == []
    household.invited("watch")
    household.sync(household.phone)
    assert told(shown(household.phone)) == [("added", "watch", "core")]


def test_a_revocation_is_told_by_name_and_by_whom(household: Household) -> None:
    household.store.run(revoke(household.core, household.phone.device_id, now_ms=5000))
    household.sync(household.tablet)
    found = vault_changes(household.tablet)[-1]
    assert (found.kind, found.name, found.by_name, found.at) == (ChangeKind.REVOKED, "phone", "core", 5000)
    with pytest.raises(Revoked):
        household.sync(household.phone)
    own = vault_changes(household.phone)[-1]
    assert (own.kind, own.device, own.by_name) == (ChangeKind.REVOKED, household.phone.device_id, "core")


def test_another_root_is_news(household: Household) -> None:
    household.store.run(rotate_root(household.core, household.root, new_root("next"), now_ms=7000))
    household.sync(household.tablet)
    found = vault_changes(household.tablet)[-1]
    assert (found.kind, found.by_root, found.by_name) == (ChangeKind.ROOT_REPLACED, True, "core")
    assert ChangeKind.ROOT_REPLACED not in {piece.kind for piece in vault_changes(household.core)}


def test_another_core_is_news_to_all_but_itself(household: Household) -> None:
    for member in (household.core, household.tablet, household.phone):
        shown(member)
    household.store.run(claim(household.tablet, household.root, force=True))
    household.sync(household.phone, household.core)
    for member in (household.core, household.phone):
        (found,) = shown(member)
        assert (found.kind, found.name, found.by_root) == (ChangeKind.NEW_CORE, "tablet", True)
    assert shown(household.tablet) == []


def test_a_device_that_a_thief_of_the_root_promotes_is_told_on_every_device_itself_included(
    household: Household,
) -> None:
    everybody = (household.core, household.tablet, household.phone)
    for member in everybody:
        shown(member)
    household.by_stealth(GrantRecord(household.phone.device_id))
    household.by_stealth(LeadRecord(2, household.phone.device_id, bytes(16)))
    household.by_stealth(LeadRecord(3, household.phone.device_id, bytes(15) + b"1"))
    for member in everybody:
        household.store.run(read_log(member.log, member.journal, member.keys, member.notices))
        promoted = [(piece.kind, piece.device, piece.by_root) for piece in shown(member)]
        led = (ChangeKind.NEW_CORE, household.phone.device_id, True)
        assert promoted == [(ChangeKind.GRANTED, household.phone.device_id, True), led, led]


def test_a_grant_is_told_by_whom_and_taking_the_lead_by_it_as_well(household: Household) -> None:
    for member in (household.core, household.tablet, household.phone):
        shown(member)
    household.store.run(grant_lead(household.core, household.phone.device_id, now_ms=6000))
    household.sync(household.phone)
    household.store.run(claim(household.phone, None, force=True))
    household.sync(household.tablet, household.core)
    granted, led = shown(household.tablet)
    assert (granted.kind, granted.name, granted.by_name) == (ChangeKind.GRANTED, "phone", "core")
    assert (granted.by_root, granted.at) == (False, 6000)
    assert (led.kind, led.name, led.by_name, led.by_root) == (ChangeKind.NEW_CORE, "phone", "phone", False)
    assert [piece.kind for piece in shown(household.core)] == [ChangeKind.NEW_CORE], "the grant was its own"
    assert [piece.kind for piece in shown(household.phone)] == [ChangeKind.GRANTED], "the lead was its own"


def test_the_founders_own_lead_is_no_other_core(household: Household) -> None:
    assert ChangeKind.NEW_CORE not in {piece.kind for piece in vault_changes(household.core, -1)}
    assert ChangeKind.NEW_CORE not in {piece.kind for piece in vault_changes(household.tablet, -1)}


def test_names_and_generations_are_no_news(household: Household) -> None:
    shown(household.tablet)
    household.store.run(rename(household.core, household.phone.device_id, "old phone", now_ms=1))
    household.store.run(renew_generation(household.core, now_ms=1))
    household.sync(household.tablet)
    assert shown(household.tablet) == []


def test_whoever_signs_cannot_hide_an_entry_from_a_device_by_saying_that_it_was_made_there(
    household: Household,
) -> None:
    """A thief of the root lets a device of his own in, and writes that the tablet did it."""
    thief, journal = new_device("thief"), SqliteJournal.open(":memory:")
    details = Details("thief", "Linux", 1000, household.tablet.device_id)
    household.store.run(join(thief, household.root, journal, seeded("thief"), details))
    household.sync(household.tablet)
    assert told(vault_changes(household.tablet))[-1] == ("added", "thief", "tablet")


def test_what_was_shown_never_becomes_news_again(household: Household) -> None:
    shown(household.tablet)
    place = shown_slot(household.tablet)
    mark_shown(household.tablet.journal, 0)
    assert shown_slot(household.tablet) == place
