"""Entries that add and revoke devices: what makes them void, and what they change."""

from dataclasses import replace as replaced

import msgspec
import pytest

from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog import log
from crystal_mirror.devicelog.log import ROOT_SENDER, Verdict
from crystal_mirror.devicelog.records import AddRecord, LeadRecord, RevokeRecord
from tests.mirror.logs import Logbook
from tests.mirror.support import new_device

SMALL_ORDER = bytes(32)
"""No key: whoever gives it could let any signature agree."""


@pytest.fixture
def book() -> Logbook:
    return Logbook.founded()


def changed(record: AddRecord | RevokeRecord, **fields: object) -> AddRecord | RevokeRecord:
    return msgspec.structs.replace(record, **fields)


def test_an_added_device_is_a_member_with_its_keys_and_rights(book: Logbook) -> None:
    newcomer = new_device("newcomer")
    slot = book.log.next_slot
    book.must(book.add(newcomer, grant=True), book.core)
    info = book.log.member(newcomer.id)
    assert info is not None
    assert (info.signing, info.exchange) == (
        newcomer.signing.public,
        newcomer.exchange.public.to_bytes(),
    )
    assert (info.grant, info.by_root, info.slot, info.revoked) == (True, False, slot, None)
    assert book.log.is_active(newcomer.id)
    assert book.log.active()[-1] is info


def test_no_device_is_added_twice_nor_after_it_was_revoked(book: Logbook) -> None:
    assert book.says(book.add(book.phone)) is Verdict.VOID
    book.must(book.revoke(book.phone.id))
    assert book.says(book.add(book.phone)) is Verdict.VOID
    fresh = new_device("fresh keys, old id")
    assert book.says(book.add(DeviceIdentity(book.phone.id, fresh.signing, fresh.exchange))) is Verdict.VOID


@pytest.mark.parametrize("revoked", [False, True])
@pytest.mark.parametrize(
    "taken", ["signing", "exchange", "signing as exchange", "exchange as signing", "both alike"]
)
def test_no_device_comes_with_keys_that_another_has_or_had(
    book: Logbook, taken: str, *, revoked: bool
) -> None:
    if revoked:
        book.must(book.revoke(book.phone.id))
    theirs = {"s": book.phone.signing.public.to_bytes(), "e": book.phone.exchange.public.to_bytes()}
    mine = book.add(new_device("newcomer"))
    match taken:
        case "signing":
            record = changed(mine, signing=theirs["s"])
        case "exchange":
            record = changed(mine, exchange=theirs["e"])
        case "signing as exchange":
            record = changed(mine, exchange=theirs["s"])
        case "exchange as signing":
            record = changed(mine, signing=theirs["e"])
        case _:
            record = changed(mine, exchange=mine.signing)
    assert book.says(record) is Verdict.VOID


def test_a_device_without_a_key_that_can_sign_is_not_added(book: Logbook) -> None:
    assert book.says(changed(book.add(new_device("x")), signing=SMALL_ORDER)) is Verdict.VOID


@pytest.mark.parametrize("by", [-1, 1])
def test_a_device_is_added_with_the_generation_in_force_and_no_other(book: Logbook, by: int) -> None:
    book.must(book.generation())
    record = changed(book.add(new_device("x")), generation=2 + by)
    assert book.says(record) is Verdict.VOID
    assert book.log.extend(book.seal(record, key=book.key(2 + by))) is Verdict.VOID


def test_a_vault_has_so_many_devices_revoked_ones_included(
    book: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MEMBERS_MAX", 4)
    book.must(book.add(new_device("fourth")))
    assert book.says(book.add(new_device("fifth"))) is Verdict.VOID
    book.must(book.revoke(book.phone.id))
    assert book.says(book.add(new_device("fifth"))) is Verdict.VOID


def test_a_revoked_device_is_out_for_good_and_counts_up_to_its_cutoffs(book: Logbook) -> None:
    first, second = b"a" * 8, b"b" * 8
    slot = book.log.next_slot
    book.must(book.revoke(book.phone.id, ((first, 7), (second, 0))), book.core)
    info = book.log.member(book.phone.id)
    assert info is not None
    out = info.revoked
    assert out is not None
    assert (out.slot, out.sender) == (slot, book.core.id)
    assert [out.counts(first, n) for n in (0, 7, 8)] == [True, True, False]
    assert [out.counts(second, n) for n in (0, 1)] == [True, False]
    assert not out.counts(b"c" * 8, 0), "nothing counts of an incarnation that was not there"
    assert not book.log.is_active(book.phone.id)
    assert [member.device for member in book.log.active()] == [book.core.id, book.laptop.id]
    assert len(book.log.members()) == 3


def test_a_revocation_begins_a_generation_whose_keys_all_others_and_the_root_get(book: Logbook) -> None:
    head = book.log.head
    book.must(book.revoke(book.phone.id))
    assert book.log.generation == 2
    assert book.log.knows_head(head)
    assert not book.log.knows_head(b"never".ljust(32))
    for device in (book.core, book.laptop):
        assert [sealed.generation for sealed in book.log.sealed_keys(device.id)] == [1, 2]
    assert [sealed.generation for sealed in book.log.sealed_keys(book.phone.id)] == [1]
    assert (book.log.recovery_keys[-1].generation, book.log.recovery_keys[-1].recipient) == (2, ROOT_SENDER)
    assert book.log.recovery_keys[-1].log_head == head


def test_a_device_that_is_not_there_or_is_out_already_cannot_be_revoked(book: Logbook) -> None:
    assert book.says(book.revoke(new_device("stranger").id)) is Verdict.VOID
    book.must(book.revoke(book.phone.id))
    assert book.says(book.revoke(book.phone.id)) is Verdict.VOID


def test_the_device_that_leads_is_revoked_only_after_another_took_the_lead(book: Logbook) -> None:
    assert book.says(book.revoke(book.core.id)) is Verdict.VOID
    book.must(LeadRecord(2, book.laptop.id, bytes(16)))
    assert book.says(book.revoke(book.core.id)) is Verdict.VALID


def test_a_revocation_that_begins_no_next_generation_is_void(book: Logbook) -> None:
    record = book.revoke(book.phone.id)
    for number in (1, 3):
        other = changed(record, generation=number)
        assert book.says(other) is Verdict.VOID
        assert book.log.extend(book.seal(other, key=book.key(number))) is Verdict.VOID
    assert book.log.extend(book.seal(record, key=book.key(1))) is Verdict.VOID, "sealed for the device too"


@pytest.mark.parametrize("cutoffs", [((b"b" * 8, 1), (b"a" * 8, 1)), ((b"a" * 8, 1), (b"a" * 8, 2))])
def test_cutoffs_are_in_order_and_name_each_incarnation_once(
    book: Logbook, cutoffs: tuple[tuple[bytes, int], ...]
) -> None:
    assert book.says(book.revoke(book.phone.id, cutoffs)) is Verdict.VOID


@pytest.mark.parametrize("kind", ["revoke", "generation"])
@pytest.mark.parametrize("wrong", ["one left out", "the revoked one", "a stranger", "order", "twice", "none"])
def test_new_keys_are_for_every_active_device_and_for_nobody_else(
    book: Logbook, wrong: str, kind: str
) -> None:
    gone = new_device("gone")
    book.must(book.add(gone))
    book.must(book.revoke(gone.id))
    record = book.revoke(book.phone.id) if kind == "revoke" else book.generation()
    good = record.bundles
    out = book.phone if kind == "revoke" else gone

    def slipped_in(device: DeviceIdentity) -> tuple[tuple[bytes, bytes], ...]:
        bundle = book.bundle(device.exchange.public, device.id, record.generation)
        return tuple(sorted((*good, (device.id, bundle))))

    bundles = {
        "one left out": good[1:],
        "the revoked one": slipped_in(out),
        "a stranger": slipped_in(new_device("stranger")),
        "order": good[::-1],
        "twice": (good[0], *good),
        "none": (),
    }[wrong]
    assert book.says(msgspec.structs.replace(record, bundles=bundles)) is Verdict.VOID
    assert book.says(record) is Verdict.VALID


def test_who_holds_the_root_is_told_by_who_made_it_and_who_came_by_it(book: Logbook) -> None:
    by_kit, granted = new_device("came by the kit"), new_device("granted")
    book.must(book.add(by_kit, holds_root=True))
    book.must(book.add(granted, grant=True), book.core)
    holders = (book.core, by_kit, granted)
    assert [book.log.held_root(device.id) for device in holders] == [True, True, False]
    third = new_device("third")
    new_root_record = book.root_record(type(book.root)(bytes(range(32))), holder=book.core.id)
    book.must(new_root_record)
    book.root = type(book.root)(bytes(range(32)))
    book.must(book.add(third, holds_root=True))
    assert [book.log.held_root(device.id) for device in (*holders, third)] == [True, False, False, True]
    assert not book.log.held_root(new_device("stranger").id)


def test_a_thief_of_the_root_cannot_pass_its_machines_off_as_ones_without_it(book: Logbook) -> None:
    added, led = new_device("taken in by stealth"), new_device("given the lead")
    book.must(book.add(led), book.core)
    assert not book.log.held_root(led.id)
    book.must(book.add(added, holds_root=False))
    book.must(LeadRecord(2, led.id, bytes(16)))
    assert book.log.held_root(added.id)
    assert book.log.held_root(led.id)
    fresh = type(book.root)(bytes(range(32)))
    book.must(book.root_record(fresh, holder=book.core.id))
    assert [book.log.held_root(device.id) for device in (added, led, book.core)] == [False, False, True]


def test_a_member_tells_its_revocation_and_forgets_nothing_else(book: Logbook) -> None:
    before = book.log.member(book.phone.id)
    book.must(book.revoke(book.phone.id))
    after = book.log.member(book.phone.id)
    assert before is not None
    assert after is not None
    assert replaced(after, revoked=None) == before
