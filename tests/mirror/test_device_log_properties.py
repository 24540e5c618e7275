"""The device log under anything that anybody may say: valid and invalid records in any order, flipped, cut and spliced bytes.

The oracle is a handful of sets: who is active, who leads, who holds a grant, which root is in force.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_crypto.entry import parse
from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_crypto.limits import HEADER_BYTES, MAC_BYTES, SIGNATURE_BYTES
from crystal_mirror.devicelog.log import NOBODY, DeviceLog, Verdict
from crystal_mirror.devicelog.records import GrantRecord, LeadRecord, NameRecord, Record
from tests.mirror.logs import Logbook
from tests.mirror.support import new_device, new_root

DEVICES = tuple(new_device(f"device {number}") for number in range(5))
ROOTS = tuple(new_root(f"root {number}") for number in range(3))
Said = tuple[str, int, int, int]
"""What is said, by whom (below the number of roots: a root), about which device, and how it is spoilt."""

SPOILT: tuple[Callable[[bytes], bytes], ...] = (
    lambda data: data[:-1],
    lambda data: data + b"\x00",
    lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
    lambda data: data[:-1] + bytes([data[-1] ^ 128]),
    lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
    lambda _: b"",
)


@dataclass
class Oracle:
    """Who may say what, apart from the product's code."""

    active: set[int] = field(default_factory=set[int])
    known: set[int] = field(default_factory=set[int])
    grants: set[int] = field(default_factory=set[int])
    lead: int = -1
    """Who leads, or led last before a freeze."""
    frozen: bool = False
    epoch: int = 0
    root: int = -1
    roots: set[int] = field(default_factory=set[int])

    def takes(self, what: str, by: int, about: int) -> bool:
        """Whether it is an entry; if so, it is taken in."""
        if self.root < 0:
            if what != "root" or (by, about % len(ROOTS)) != (0, 0):
                return False
        elif by < len(ROOTS):
            if by != self.root:
                return False
        elif not self._device_may(what, by - len(ROOTS), about):
            return False
        return self._take(what, about)

    def _device_may(self, what: str, by: int, about: int) -> bool:
        if by not in self.active or what == "root":
            return False
        itself = by == about and (what == "name" or (what == "lead" and by in self.grants))
        return (by == self.lead and not self.frozen) or itself

    def _take(self, what: str, about: int) -> bool:
        match what:
            case "root":
                number = about % len(ROOTS)
                if number in self.roots:
                    return False
                self.root = number
                self.roots.add(number)
            case "add":
                if about in self.known:
                    return False
                self.known.add(about)
                self.active.add(about)
            case "revoke":
                if about not in self.active or about == self.lead:
                    return False
                self.active.discard(about)
            case "lead":
                if about not in self.active:
                    return False
                self.lead, self.epoch, self.frozen = about, self.epoch + 1, False
            case "freeze":
                if self.lead < 0 or self.frozen:
                    return False
                self.epoch, self.frozen = self.epoch + 1, True
            case "grant":
                if about not in self.active or about in self.grants:
                    return False
                self.grants.add(about)
            case "name":
                return about in self.active
            case _:
                pass
        return True


KINDS = ("root", "add", "revoke", "generation", "lead", "freeze", "grant", "name")


def record(book: Logbook, what: str, about: int) -> Record:
    device = DEVICES[about]
    match what:
        case "root":
            return book.root_record(ROOTS[about % len(ROOTS)])
        case "add":
            return book.add(device)
        case "revoke":
            return book.revoke(device.id)
        case "generation":
            return book.generation()
        case "lead" | "freeze":
            lead = book.log.lead
            leader = device.id if what == "lead" else NOBODY
            return LeadRecord((lead.epoch if lead else 0) + 1, leader, bytes([about] * 16))
        case "grant":
            return GrantRecord(device.id)
        case _:
            return NameRecord(device.id)


def state(log: DeviceLog) -> object:
    """Everything that a log says, its count of slots apart."""
    return (
        log.head,
        log.generation,
        log.root,
        log.root_number,
        log.lead,
        tuple(
            (
                info.device,
                info.grant,
                (out := info.revoked) and (out.slot, out.sender, out.cutoffs, out.entry.hash),
                info.named.hash,
            )
            for info in log.members()
        ),
        tuple(
            (info.device, tuple(log.sealed_keys(info.device)), log.held_root(info.device))
            for info in log.members()
        ),
        tuple(log.recovery_keys),
        tuple((event.slot, event.sender, event.entry.hash) for event in log.events),
    )


def signer(by: int) -> Root | DeviceIdentity:
    return ROOTS[by] if by < len(ROOTS) else DEVICES[by - len(ROOTS)]


def play(said: list[Said]) -> tuple[list[bytes], DeviceLog, Oracle]:
    """Says it all. Each verdict is the oracle's, and what is void changes nothing."""
    book, oracle = Logbook("root 0"), Oracle()
    slots: list[bytes] = []
    for what, by, about, spoilt in said:
        if book.log.root is None and what in ("revoke", "generation"):
            continue  # there is nobody yet to whom keys could be sealed
        data = book.seal(record(book, what, about), signer(by))
        if spoilt < len(SPOILT):
            data = SPOILT[spoilt](data)
        before = state(book.log)
        valid = spoilt >= len(SPOILT) and oracle.takes(what, by, about)
        assert book.log.would_take(data) is valid
        assert (book.log.extend(data) is Verdict.VALID) is valid
        if not valid:
            assert state(book.log) == before
        slots.append(data)
    return slots, book.log, oracle


COMMON = [("root", 0, 0, 99), ("add", 0, 0, 99), ("lead", 0, 0, 99), ("add", 3, 1, 99)]
sayings = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.one_of(st.sampled_from((0, 0, 3, 3)), st.integers(0, len(ROOTS) + len(DEVICES) - 1)),
        st.integers(0, len(DEVICES) - 1),
        st.one_of(st.just(99), st.just(99), st.integers(0, 99)),
    ),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(sayings, st.booleans())
def test_each_verdict_is_that_of_the_rules_and_what_is_void_changes_nothing(
    said: list[Said], begun: bool
) -> None:
    _, log, oracle = play([*COMMON, *said] if begun else said)
    assert {info.device for info in log.active()} == {DEVICES[number].id for number in oracle.active}
    assert (log.lead.epoch if log.lead else 0) == oracle.epoch
    assert log.root_number == max(0, len(oracle.roots) - 1)


@settings(max_examples=60, deadline=None)
@given(sayings, st.lists(st.binary(max_size=300), max_size=4), st.data())
def test_two_readers_always_agree_whatever_they_step_back_over(
    said: list[Said], junk: list[bytes], data: st.DataObject
) -> None:
    """One reads straight on; the other is shown junk on the way, steps back over it, and reads the true bytes."""
    slots, log, _ = play([*COMMON, *said])
    straight, winding = DeviceLog(log.vault), DeviceLog(log.vault)
    for slot in slots:
        straight.extend(slot)
        for bad in data.draw(st.lists(st.sampled_from(junk), max_size=2)) if junk else ():
            assert winding.extend(bad) is Verdict.VOID
            winding.retract_voids(1)
        winding.extend(slot)
    assert state(straight) == state(winding) == state(log)
    assert straight.next_slot == winding.next_slot == log.next_slot
    assert straight.void_slots == winding.void_slots == log.void_slots


@settings(max_examples=60, deadline=None)
@given(sayings)
def test_what_a_log_has_said_it_never_takes_back(said: list[Said]) -> None:
    """Generations, roots and epochs only rise; who is out stays out; no head is forgotten."""
    slots, log, _ = play([*COMMON, *said])
    again = DeviceLog(log.vault)
    generation = epoch = roots = 0
    out: set[bytes] = set()
    heads: list[bytes] = []
    for slot in slots:
        again.extend(slot)
        assert again.generation >= generation
        assert again.root_number >= roots
        assert (again.lead.epoch if again.lead else 0) >= epoch
        now_out = {info.device for info in again.members() if info.revoked}
        assert out <= now_out
        heads.append(again.head)
        assert all(again.knows_head(head) for head in heads)
        generation, roots, out = again.generation, again.root_number, now_out
        epoch = again.lead.epoch if again.lead else 0


@functools.cache
def valid_entries() -> dict[str, tuple[Logbook, bytes]]:
    """One valid entry of each kind, with a log whose next slot it is."""
    found: dict[str, tuple[Logbook, bytes]] = {}
    for what in KINDS:
        book = Logbook("root 0")
        said = [] if what == "root" else [*COMMON, ("add", 3, 2, 99)]
        for kind, by, about, _ in said:
            book.must(record(book, kind, about), signer(by))
        about = {"root": 0, "add": 3}.get(what, 1)
        found[what] = book, book.seal(record(book, what, about), ROOTS[0])
    return found


def assert_void(book: Logbook, data: bytes) -> None:
    before = state(book.log)
    assert book.log.extend(data) is Verdict.VOID
    book.log.retract_voids(1)
    assert state(book.log) == before


@pytest.mark.parametrize("what", KINDS)
def test_every_flipped_byte_of_every_kind_is_void(what: str) -> None:
    """In the header, the public part, the sealed body (which the log does not open), the MAC, and the signature."""
    book, data = valid_entries()[what]
    assert book.log.would_take(data)
    for at in range(len(data)):
        for bit in (1, 128):
            assert_void(book, data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])


@pytest.mark.parametrize("what", KINDS)
def test_every_cut_of_every_kind_is_void(what: str) -> None:
    book, data = valid_entries()[what]
    for at in range(len(data)):
        assert_void(book, data[:at])
        if at:
            assert_void(book, data[at:])
    assert_void(book, data + data)


def parts_of(data: bytes) -> list[bytes]:
    """Header, public part, sealed body, MAC and signature."""
    public_end = HEADER_BYTES + len(parse(data).public)
    ends = [
        0,
        HEADER_BYTES,
        public_end,
        len(data) - MAC_BYTES - SIGNATURE_BYTES,
        len(data) - SIGNATURE_BYTES,
        len(data),
    ]
    return [data[start:end] for start, end in itertools.pairwise(ends)]


@pytest.mark.parametrize("what", KINDS[1:])
def test_parts_of_two_entries_put_together_are_void(what: str) -> None:
    """Another entry of the same slot and kind, by the same signer, lends its header, public part, body, MAC or signature."""
    book, data = valid_entries()[what]
    about = {"add": 4}.get(what, 2)
    other = book.seal(record(book, what, about), ROOTS[0])
    assert book.log.would_take(other)
    one, two = parts_of(data), parts_of(other)
    for mixture in range(1, 2 ** len(one) - 1):
        mixed = b"".join(two[i] if mixture >> i & 1 else one[i] for i in range(len(one)))
        assert_void(book, mixed)


@pytest.mark.parametrize("what", KINDS[1:])
def test_the_fields_of_a_record_put_in_each_others_place_are_void_without_the_signature_and_never_raise(
    what: str,
) -> None:
    """With a fresh signature by who may sign, a swap is judged by the rules like any record: never an error, and void or taken
    alike by two readers."""
    book, data = valid_entries()[what]
    public = parse(data).public
    fields = list(record(book, what, {"add": 3}.get(what, 1)).__struct_fields__)
    said = record(book, what, {"add": 3}.get(what, 1))
    for first in fields:
        for second in fields:
            swapped = {first: getattr(said, second), second: getattr(said, first)}
            if first == second or swapped[first] == swapped[second]:
                continue
            try:
                changed = type(said)(**{name: swapped.get(name, getattr(said, name)) for name in fields})
                sealed = book.seal(changed, ROOTS[0])
            except (TypeError, ValueError):
                continue
            spliced = data.replace(public, parse(sealed).public)
            if spliced != data:
                assert_void(book, spliced)
            twin = DeviceLog(book.log.vault)
            for event in book.log.events:
                twin.extend(event.entry.data)
            assert book.log.would_take(sealed) is twin.would_take(sealed)
