"""Who may say what in the device log: each kind of signer with each kind of record, and nobody else in anybody's name."""

from collections.abc import Callable

import pytest

from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.log import ROOT_SENDER, DeviceLog, Verdict
from crystal_mirror.devicelog.records import GrantRecord, LeadRecord, NameRecord, Record
from tests.mirror.logs import Logbook, Signer
from tests.mirror.support import new_device, new_root


class People(Logbook):
    """A log with one of each: a root that was replaced, a Core that leads, one with a grant, one that is out."""

    def __init__(self) -> None:
        super().__init__()
        self.core, self.laptop, self.phone = (new_device(name) for name in ("core", "laptop", "phone"))
        self.granted, self.gone = new_device("granted"), new_device("gone")
        self.must(self.root_record(self.root))
        for device in (self.core, self.laptop, self.phone):
            self.must(self.add(device))
        for device in (self.granted, self.gone):
            self.must(self.add(device, grant=True))
        self.must(LeadRecord(1, self.core.id, bytes(16)))
        self.must(self.revoke(self.gone.id))
        self.old_root = self.rotate()


SIGNERS: dict[str, Callable[[People], Signer]] = {
    "root": lambda p: p.root,
    "core": lambda p: p.core,
    "granted": lambda p: p.granted,
    "member": lambda p: p.laptop,
    "revoked": lambda p: p.gone,
    "old root": lambda p: p.old_root,
    "stranger": lambda p: new_device("stranger"),
}
RECORDS: dict[str, Callable[[People, DeviceIdentity | None], Record]] = {
    "root": lambda p, _: p.root_record(new_root("a third")),
    "add": lambda p, _: p.add(new_device("newcomer")),
    "revoke": lambda p, _: p.revoke(p.phone.id),
    "generation": lambda p, _: p.generation(),
    "lead, itself": lambda p, who: LeadRecord(2, (who or p.phone).id, bytes(16)),
    "lead, another": lambda p, _: LeadRecord(2, p.phone.id, bytes(16)),
    "grant": lambda p, _: GrantRecord(p.phone.id),
    "name, itself": lambda p, who: NameRecord((who or p.phone).id),
    "name, another": lambda p, _: NameRecord(p.phone.id),
}
MAY: dict[str, set[str]] = {
    "root": set(RECORDS),
    "core": set(RECORDS) - {"root"},
    "granted": {"lead, itself", "name, itself"},
    "member": {"name, itself"},
    "revoked": set(),
    "old root": set(),
    "stranger": set(),
}


@pytest.mark.parametrize("what", RECORDS)
@pytest.mark.parametrize("who", SIGNERS)
def test_each_says_what_it_may_and_nothing_else(who: str, what: str) -> None:
    people = People()
    signer = SIGNERS[who](people)
    record = RECORDS[what](people, signer if isinstance(signer, DeviceIdentity) else None)
    head = people.log.head
    verdict = people.says(record, signer)
    assert verdict is (Verdict.VALID if what in MAY[who] else Verdict.VOID)
    assert (people.log.head != head) is (verdict is Verdict.VALID)


@pytest.mark.parametrize("what", sorted(set(RECORDS) - {"root"}))
@pytest.mark.parametrize("posed", ["root", "core"])
def test_a_member_that_signs_in_the_name_of_who_may_is_void(posed: str, what: str) -> None:
    people = People()
    record = RECORDS[what](people, None)
    sealed = people.seal(record, SIGNERS[posed](people), signed=people.laptop.signing)
    assert people.log.extend(sealed) is Verdict.VOID


def test_a_former_core_says_nothing_any_more_but_its_name() -> None:
    people = People()
    people.must(LeadRecord(2, people.laptop.id, bytes(16)))
    assert people.says(people.add(new_device("newcomer")), people.core) is Verdict.VOID
    assert people.says(NameRecord(people.core.id), people.core) is Verdict.VALID
    assert people.says(people.add(new_device("newcomer")), people.laptop) is Verdict.VALID


def test_a_device_with_a_grant_is_core_by_its_own_word_and_may_then_say_what_a_core_may() -> None:
    people = People()
    people.must(LeadRecord(2, people.granted.id, bytes(16)), people.granted)
    assert people.says(people.revoke(people.core.id), people.granted) is Verdict.VALID


def test_the_root_before_the_last_has_no_power_either() -> None:
    people = People()
    second, first = people.rotate("a third root"), people.old_root
    for old in (first, second):
        assert people.says(people.add(new_device("newcomer")), old) is Verdict.VOID
    assert people.says(people.add(new_device("newcomer"))) is Verdict.VALID


def test_only_a_root_entry_of_the_root_that_gives_the_vault_its_name_comes_first() -> None:
    core, other = new_device("core"), new_root("other")

    def first(build: Callable[[Logbook], bytes]) -> Verdict:
        return (book := Logbook()).log.extend(build(book))

    def named(book: Logbook) -> bytes:
        return book.seal(NameRecord(core.id))

    def by_a_device(book: Logbook) -> bytes:
        return book.seal(book.root_record(book.root), sender=core.id)

    def of_another_vault(book: Logbook) -> bytes:
        return book.seal(book.root_record(other), by=other)

    def good(book: Logbook) -> bytes:
        return book.seal(book.root_record(book.root))

    assert [first(build) for build in (named, by_a_device, of_another_vault)] == [Verdict.VOID] * 3
    assert first(good) is Verdict.VALID


def test_a_device_that_calls_itself_as_the_root_does_is_never_added() -> None:
    book = Logbook.founded()
    poser = new_device("poser")
    poser = DeviceIdentity(ROOT_SENDER, poser.signing, poser.exchange)
    assert book.says(book.add(poser)) is Verdict.VOID


def test_a_log_of_one_vault_is_void_in_another() -> None:
    book, other = Logbook.founded(), DeviceLog(Root.from_bytes(bytes(range(32))).vault)
    assert [other.extend(event.entry.data) for event in book.log.events] == [Verdict.VOID] * 5
