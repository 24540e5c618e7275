"""The keys of a device: the newest from its bundle, the older ones from the newer, and none after it is out."""

import pytest

from crystal_crypto.entry import parse
from crystal_crypto.errors import WrongKey
from crystal_crypto.hierarchy import GenerationKey, VaultSecret
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.devicelog.log import Verdict
from crystal_mirror.devicelog.records import Details, GenerationRecord, encode_details
from crystal_mirror.errors import KeysWithheld, NotAMember
from tests.mirror.logs import Logbook
from tests.mirror.support import new_device

DETAILS = encode_details(Details("", "", 0))


@pytest.fixture
def book() -> Logbook:
    return Logbook.founded()


def ring(book: Logbook, device: DeviceIdentity) -> KeyRing:
    return KeyRing.of_device(device, book.log)


def held(ring: KeyRing, upto: int) -> list[int]:
    """The generations whose right keys are there."""
    return [n for n in range(1, upto + 1) if ring.key(n) is not None]


def right(book: Logbook, ring: KeyRing) -> bool:
    return all((key := ring.key(n)) is None or key.secret == book.key(n).secret for n in range(1, 9))


def test_a_newcomer_opens_everything_with_the_one_bundle_that_it_gets(book: Logbook) -> None:
    for _ in range(3):
        book.must(book.generation(), book.core)
    late = new_device("late")
    book.must(book.add(late), book.core)
    assert len(book.log.sealed_keys(late.id)) == 1
    keys = ring(book, late)
    assert held(keys, 5) == [1, 2, 3, 4]
    assert right(book, keys)
    assert keys.current().number == 4
    assert keys.secret == book.secret


def test_a_ring_grows_with_its_log(book: Logbook) -> None:
    keys = ring(book, book.laptop)
    assert keys.current().number == 1
    assert keys.key(2) is None
    book.must(book.generation(), book.core)
    assert keys.current().number == 2
    assert keys.newest_held().number == 2


def test_an_ex_device_keeps_what_it_had_and_gets_no_more(book: Logbook) -> None:
    book.must(book.generation(), book.core)
    book.must(book.revoke(book.phone.id), book.core)
    book.must(book.generation(), book.core)
    keys = ring(book, book.phone)
    assert held(keys, 4) == [1, 2]
    assert keys.newest_held().number == 2
    with pytest.raises(KeysWithheld):
        keys.current()
    assert held(ring(book, book.laptop), 4) == [1, 2, 3, 4]


def test_what_is_sealed_after_a_revocation_opens_to_nothing_that_the_ex_device_has(book: Logbook) -> None:
    book.must(book.revoke(book.phone.id), book.core)
    entry = parse(book.log.events[-1].entry.data)
    had = [key for n in (1, 2) if (key := ring(book, book.phone).key(n)) is not None]
    assert [key.number for key in had] == [1]
    for key in (*had, GenerationKey(2, had[0].secret)):
        with pytest.raises(WrongKey):
            entry.open(key)
    assert entry.open(ring(book, book.laptop).current())[1] == had[0].secret


def hostile(book: Logbook, *, bundle: bytes | None = None, link: bytes | None = None) -> None:
    """A generation by the Core with another bundle for the laptop, or another link to the key before."""
    record = book.generation()
    if bundle is not None:
        bundles = tuple((d, bundle if d == book.laptop.id else b) for d, b in record.bundles)
        record = GenerationRecord(record.generation, record.recovery, bundles)
    frames = None if link is None else [DETAILS, link] if link else [DETAILS]
    assert book.log.extend(book.seal(record, book.core, frames=frames)) is Verdict.VALID


def test_a_bundle_that_holds_no_keys_is_passed_over_and_found_again_from_the_next(book: Logbook) -> None:
    other = book.generation().bundles[0][1]
    for junk in (bytes(114), other):
        hostile(book, bundle=junk)
        keys = ring(book, book.laptop)
        number = book.log.generation
        assert keys.key(number) is None
        assert keys.newest_held().number == number - 1
        with pytest.raises(KeysWithheld):
            keys.current()
        book.must(book.generation(), book.core)
        assert keys.current().number == number + 1
        assert held(keys, number + 1) == list(range(1, number + 2)), "the withheld one by the link"
        assert right(book, keys)


def test_a_bundle_with_a_key_under_which_nothing_is_sealed_is_not_believed(book: Logbook) -> None:
    keys = book.keys.pop(2, None)
    assert keys is None
    false = Logbook()
    false.log, false.secret = book.log, book.secret
    bundle = false.bundle(book.laptop.exchange.public, book.laptop.id, 2)
    hostile(book, bundle=bundle)
    assert ring(book, book.laptop).key(2) is None


def test_a_bundle_with_another_secret_is_not_believed(book: Logbook) -> None:
    """Another N would make the device's digests, and what it forgets, differ from everybody else's."""
    good = book.secret
    book.secret = VaultSecret(bytes(32))
    bundle = book.bundle(book.laptop.exchange.public, book.laptop.id, 2)
    book.secret = good
    hostile(book, bundle=bundle)
    keys = ring(book, book.laptop)
    assert keys.secret == good
    assert keys.key(2) is None


@pytest.mark.parametrize("link", [b"", b"short", bytes(32)])
def test_a_link_that_is_false_is_passed_over_for_a_bundle(book: Logbook, link: bytes) -> None:
    hostile(book, link=link)
    book.must(book.generation(), book.core)
    keys = ring(book, book.laptop)
    assert held(keys, 3) == [1, 2, 3]
    assert right(book, keys)
    late = new_device("late")
    book.must(book.add(late), book.core)
    assert held(ring(book, late), 3) == [2, 3], "it has no bundle of the first: that one it cannot have"
    assert right(book, ring(book, late))


def test_a_false_link_above_a_bundle_does_not_cut_off_what_lies_below_it(book: Logbook) -> None:
    book.must(book.generation(), book.core)
    late = new_device("late")
    book.must(book.add(late), book.core)
    hostile(book, link=bytes(32))
    assert held(ring(book, late), 3) == [1, 2, 3]


def test_the_root_in_force_opens_all_generations_and_a_replaced_one_nothing(book: Logbook) -> None:
    book.must(book.generation(), book.core)
    assert held(KeyRing.of_root(book.root, book.log), 3) == [1, 2]
    old = book.rotate()
    with pytest.raises(WrongKey):
        KeyRing.of_root(old, book.log)
    for _ in range(2):
        keys = KeyRing.of_root(book.root, book.log)
        assert held(keys, book.log.generation) == list(range(1, book.log.generation + 1))
        assert keys.current().number == book.log.generation
        assert keys.secret == book.secret
        book.must(book.generation(), book.core)
        with pytest.raises(WrongKey):
            KeyRing.of_root(old, book.log)


def test_who_is_not_in_the_log_or_has_other_keys_than_it_says_has_no_ring(book: Logbook) -> None:
    with pytest.raises(NotAMember):
        ring(book, new_device("stranger"))
    fresh = new_device("fresh")
    with pytest.raises(WrongKey):
        ring(book, DeviceIdentity(book.laptop.id, fresh.signing, book.laptop.exchange))
    with pytest.raises(WrongKey):
        ring(book, DeviceIdentity(book.laptop.id, book.laptop.signing, fresh.exchange))


def test_generations_that_are_not_there_have_no_key(book: Logbook) -> None:
    keys = ring(book, book.laptop)
    assert [keys.key(n) for n in (-1, 0, 2, 2**32)] == [None] * 4
