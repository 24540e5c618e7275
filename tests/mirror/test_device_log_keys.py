"""Entries that begin a generation or put another root in force, those that hand the lead on, and the place of every entry."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from crystal_crypto.entry import Channel, Kind
from crystal_crypto.hierarchy import Root
from crystal_mirror.devicelog.log import ROOT_SENDER, Verdict
from crystal_mirror.devicelog.records import (
    GrantRecord,
    LeadRecord,
    NameRecord,
    Record,
    decode_record,
    encode_record,
)
from tests.mirror.logs import Logbook
from tests.mirror.support import new_device, new_root


@pytest.fixture
def book() -> Logbook:
    return Logbook.founded()


def test_a_generation_follows_the_one_before_and_no_other(book: Logbook) -> None:
    record = book.generation()
    for number in (1, 3):
        other = msgspec.structs.replace(record, generation=number)
        assert book.says(other) is Verdict.VOID
        assert book.log.extend(book.seal(other, key=book.key(number))) is Verdict.VOID
    assert book.log.extend(book.seal(record, key=book.key(1))) is Verdict.VOID
    assert book.says(record) is Verdict.VALID
    assert book.log.generation == 2
    entry = book.log.generation_entry(2)
    assert entry is not None
    assert entry.hash == book.log.head


def test_an_entry_that_begins_no_generation_is_sealed_in_the_one_in_force(book: Logbook) -> None:
    book.must(book.generation())
    records: list[Record] = [
        book.root_record(new_root("another")),
        book.add(new_device("x")),
        LeadRecord(2, book.laptop.id, bytes(16)),
        GrantRecord(book.laptop.id),
        NameRecord(book.laptop.id),
    ]
    for record in records:
        for number in (1, 3):
            assert book.log.extend(book.seal(record, key=book.key(number))) is Verdict.VOID


def test_the_first_root_begins_the_first_generation() -> None:
    book = Logbook()
    record = msgspec.structs.replace(book.root_record(book.root), generation=2)
    assert book.log.extend(book.seal(record, key=book.key(2))) is Verdict.VOID
    assert book.log.extend(book.seal(record, key=book.key(1))) is Verdict.VOID
    book.must(book.root_record(book.root))
    assert (book.log.generation, book.log.root_number) == (1, 0)


def test_another_root_takes_over_with_the_generation_in_force(book: Logbook) -> None:
    book.must(book.generation())
    before = book.log.root
    old = book.rotate()
    assert book.log.root != before
    assert (book.log.root_number, book.log.generation) == (1, 2)
    assert (book.log.recovery_keys[-1].generation, book.log.recovery_keys[-1].recipient) == (2, ROOT_SENDER)
    generation_entry = book.log.generation_entry(2)
    assert generation_entry is not None
    assert generation_entry.hash != book.log.head, "another root begins no generation"
    assert book.says(book.root_record(new_root("a third")), old) is Verdict.VOID


@pytest.mark.parametrize("number", [1, 3])
def test_another_root_with_keys_of_another_generation_is_void(book: Logbook, number: int) -> None:
    book.must(book.generation())
    record = msgspec.structs.replace(book.root_record(new_root("another")), generation=number)
    assert book.says(record) is Verdict.VOID


def test_a_root_never_comes_back(book: Logbook) -> None:
    assert book.says(book.root_record(book.root)) is Verdict.VOID
    old = book.rotate()
    assert book.says(book.root_record(old)) is Verdict.VOID
    assert book.log.root_number == 1


def test_a_root_without_a_key_that_can_sign_is_void(book: Logbook) -> None:
    record = msgspec.structs.replace(book.root_record(new_root("another")), admin=bytes(32))
    assert book.says(record) is Verdict.VOID


@pytest.mark.parametrize("epoch", [1, 3, 99])
def test_a_lead_out_of_turn_is_void(book: Logbook, epoch: int) -> None:
    assert book.says(LeadRecord(epoch, book.laptop.id, bytes(16))) is Verdict.VOID


def test_only_an_active_device_is_given_the_lead_a_grant_or_a_name(book: Logbook) -> None:
    book.must(book.revoke(book.phone.id))
    for device in (book.phone, new_device("stranger")):
        assert book.says(LeadRecord(2, device.id, bytes(16))) is Verdict.VOID
        assert book.says(GrantRecord(device.id)) is Verdict.VOID
        assert book.says(NameRecord(device.id)) is Verdict.VOID


def test_a_grant_is_given_once_and_stays(book: Logbook) -> None:
    assert book.says(LeadRecord(2, book.laptop.id, bytes(16)), book.laptop) is Verdict.VOID
    book.grant(book.laptop)
    assert book.says(GrantRecord(book.laptop.id)) is Verdict.VOID
    book.must(LeadRecord(2, book.phone.id, bytes(16)))
    book.must(LeadRecord(3, book.laptop.id, b"c" * 16), book.laptop)
    lead = book.log.lead
    assert lead is not None
    assert (lead.epoch, lead.device, lead.claim) == (3, book.laptop.id, b"c" * 16)
    assert [(reign := book.log.lead_of(n)) and reign.device for n in (1, 2, 3, 4)] == [
        book.core.id,
        book.phone.id,
        book.laptop.id,
        None,
    ]


def test_a_name_is_told_by_the_entry_that_gave_it_last(book: Logbook) -> None:
    book.rename(book.phone)
    info = book.log.member(book.phone.id)
    assert info is not None
    assert info.named.hash == book.log.head
    assert info.entry.hash != book.log.head


def test_what_happened_is_told_in_order_without_what_is_void(book: Logbook) -> None:
    book.log.extend(b"junk")
    book.must(book.revoke(book.phone.id), book.core)
    told = [(event.slot, type(event.record).__name__, event.sender) for event in book.log.events]
    assert told[-2:] == [(4, "LeadRecord", ROOT_SENDER), (6, "RevokeRecord", book.core.id)]
    assert book.log.void_slots == 1


@dataclass(frozen=True)
class Misplaced:
    """A field of the header that is not what this place in this log asks for."""

    name: str
    fields: dict[str, Any]


@pytest.mark.parametrize(
    "misplaced",
    [
        Misplaced("channel", {"kind": Kind.OFFER, "channel": Channel.CONVERSATIONS}),
        Misplaced("vault", {"vault": b"another vault..."}),
        Misplaced("slot before", {"sequence": 4}),
        Misplaced("slot after", {"sequence": 6}),
        Misplaced("previous", {"previous": bytes(32)}),
        Misplaced("log head", {"log_head": bytes(32)}),
        Misplaced("incarnation", {"incarnation": b"12345678"}),
    ],
    ids=lambda misplaced: misplaced.name,
)
def test_an_entry_with_a_header_for_another_place_is_void(book: Logbook, misplaced: Misplaced) -> None:
    record = NameRecord(book.phone.id)
    assert book.log.next_slot == 5
    assert book.log.extend(book.seal(record, **misplaced.fields)) is Verdict.VOID


def _array(*values: object) -> bytes:
    return msgspec.msgpack.encode(list(values))


def test_a_record_that_is_not_exactly_one_of_the_seven_is_void(book: Logbook) -> None:
    device = book.phone.id
    for public in (
        b"",
        b"\xc1",
        _array(),
        _array("unknown", device),
        _array("name"),
        _array("name", device[:15]),
        _array("name", device, 1),
        _array("name", device.hex()),
        _array("lead", 2, device, bytes(15)),
        _array("lead", 0, device, bytes(16)),
        encode_record(NameRecord(device)) + b"\x00",
        msgspec.msgpack.encode({"name": device}),
    ):
        assert decode_record(public) is None
        assert book.log.extend(book.seal(public)) is Verdict.VOID
    assert book.log.extend(book.seal(_array("name", device))) is Verdict.VALID


def test_a_verdict_asks_for_no_key_and_no_clock(book: Logbook) -> None:
    """Sealed with a key that nobody has, and made in the year 1 or 9999: the same for everybody."""
    sealed = book.seal(NameRecord(book.phone.id), frames=[b"no details at all"])
    assert book.log.extend(sealed) is Verdict.VALID
    junk_key = type(book.key(1))(1, bytes(32))
    assert book.log.extend(book.seal(NameRecord(book.phone.id), key=junk_key)) is Verdict.VALID


def test_another_generations_keys_for_a_replaced_root_are_not_the_roots(book: Logbook) -> None:
    old: Root = book.rotate()
    assert book.log.root is not None
    assert book.log.root.admin == book.root.admin.public.to_bytes() != old.admin.public.to_bytes()
    book.must(book.generation())
    assert book.log.recovery_keys[-1].generation == 2
