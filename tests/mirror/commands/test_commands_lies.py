"""A relay that lies, and members that misuse their keys: nothing runs that was not asked, and nothing twice."""

from pathlib import Path

import pytest

from crystal_crypto.entry import Channel, Frame, Header, Kind, seal
from crystal_crypto.identity import ExchangePublic
from crystal_crypto.letter import seal_letter
from crystal_mirror.commands.database import ReceivedState, command_notices
from crystal_mirror.commands.entries import CLAIMS, claim_hash, claim_key, seal_message
from crystal_mirror.commands.messages import Action, Arguments, CommandState, Report, Request, encode_message
from crystal_mirror.commands.reader import JUNK_MAX, NEW_STREAMS_MAX
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import PutNew
from crystal_mirror.types import ZERO_HASH
from tests.mirror.commands.office import Office
from tests.mirror.support import Objects


class Permissive(Objects):
    """A store that calls every create-only write a success, and keeps the first bytes."""

    def answer(self, request: object) -> object:
        answered = super().answer(request)  # type: ignore[arg-type]
        return True if isinstance(request, PutNew) else answered


class Hiding(Objects):
    """A store that lists an object and does not show it."""

    hidden = ""

    def get(self, key: str, default: object = None) -> bytes | None:  # type: ignore[override]
        return None if key == self.hidden else super().get(key)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def request(number: int = 1, action: str = "status", sequence: int = 5_000) -> Request:
    return Request(bytes([number]) * 16, action, Arguments(), 1, sequence)


def forged(
    sender: Member, recipient: Member, data: bytes, *, incarnation: bytes, sequence: int, previous: bytes
) -> bytes:
    """An entry that the sender really signed, in whatever place."""
    info = sender.log.member(recipient.device_id)
    assert info is not None
    return seal_message(sender, data, info, incarnation=incarnation, sequence=sequence, previous=previous)


def put(
    office: Office, sender: Member, recipient: Member, data: bytes, incarnation: bytes = b"12345678"
) -> str:
    key = sender.keys.command(sender.device_id, incarnation, 0)
    office.store[key] = forged(
        sender, recipient, data, incarnation=incarnation, sequence=0, previous=ZERO_HASH
    )
    return key


def test_a_request_that_is_shown_again_is_not_run_again(office: Office) -> None:
    asked = office.asker.ask(office.desk)
    office.asker.exchange()
    (key,) = office.stored(office.laptop_member)
    stored = office.store[key]
    office.whole()
    stream, _, slot = key.rpartition("/")
    office.store[f"{stream}/{int(slot) + 7:016d}"] = stored
    office.store[f"{stream[:-16]}{'ab' * 8}/{0:016d}"] = stored
    office.store[key] = stored
    office.whole()
    assert office.desk.ran == [asked]
    assert command_notices(office.desk.book)["tampered"].count == 2


def test_a_request_that_its_sender_seals_twice_is_run_once(office: Office) -> None:
    data = encode_message(request())
    put(office, office.laptop_member, office.core, data)
    put(office, office.laptop_member, office.core, data, b"87654321")
    office.whole()
    assert office.desk.ran == [request().id]


def test_a_request_that_does_not_follow_the_entry_before_it_is_not_run(office: Office) -> None:
    """Two copies of its sender wrote to one stream, and the relay shows some of each."""
    laptop, core = office.laptop_member, office.core
    put(office, laptop, core, encode_message(request(1)))
    office.whole()
    second = laptop.keys.command(laptop.device_id, b"12345678", 1)
    data = encode_message(request(2))
    office.store[second] = forged(
        laptop, core, data, incarnation=b"12345678", sequence=1, previous=bytes(range(32))
    )
    first = laptop.keys.command(laptop.device_id, b"87654321", 0)
    office.store[first] = forged(
        laptop, core, data, incarnation=b"87654321", sequence=0, previous=bytes(range(32))
    )
    office.whole()
    assert office.desk.ran == [request(1).id]
    assert command_notices(office.desk.book)["tampered"].count == 2


def test_what_is_withheld_is_not_run_and_what_follows_is_not_held_up_for_ever(office: Office) -> None:
    first, second, third = (office.asker.ask(office.desk) for _ in range(3))
    office.asker.exchange()
    keys = office.stored(office.laptop_member)
    withheld = office.store.pop(keys[1])
    office.whole()
    assert office.desk.ran == [first, third]
    office.store[keys[1]] = withheld
    office.whole()
    assert office.desk.ran == [first, third]
    assert office.asker.state(second) is CommandState.SENT


def test_what_is_listed_and_not_shown_waits(office: Office) -> None:
    first, second = (office.asker.ask(office.desk) for _ in range(2))
    office.asker.exchange()
    hidden = office.stored(office.laptop_member)[0]
    honest, office.store = office.store, Hiding(office.store)
    office.store.hidden = hidden
    office.desk.exchange()
    assert office.desk.book.all_received() == []
    office.store = honest
    office.whole()
    assert office.desk.ran == [first, second]


def test_junk_in_a_stream_runs_nothing_and_is_fetched_once(office: Office) -> None:
    asked = office.asker.ask(office.desk)
    office.asker.exchange()
    (key,) = office.stored(office.laptop_member)
    stream, _, slot = key.rpartition("/")
    for number in range(5):
        office.store[f"{stream}/{int(slot) + 10 + number:016d}"] = bytes([number]) * 300
    office.whole()
    assert office.desk.ran == [asked]
    assert command_notices(office.desk.book)["tampered"].count == 5
    later = office.asker.ask(office.desk)
    office.whole()
    assert office.desk.ran == [asked, later]
    assert command_notices(office.desk.book)["tampered"].count == 5


def test_junk_in_the_next_place_of_a_stream_costs_it_that_stream_and_no_command(office: Office) -> None:
    office.asker.ask(office.desk)
    office.asker.exchange()
    (key,) = office.stored(office.laptop_member)
    stream, _, slot = key.rpartition("/")
    office.store[f"{stream}/{int(slot) + 1:016d}"] = b"junk" * 100
    office.asker.ask(office.desk)
    office.whole()
    assert len(office.desk.ran) == 2
    assert command_notices(office.asker.book)["tampered"].count == 1


def test_a_stream_full_of_junk_and_many_streams_of_junk_are_bounded(office: Office) -> None:
    device = office.laptop_member.device_id
    for number in range(JUNK_MAX * 3):
        office.store[office.core.keys.command(device, b"junkjunk", number)] = b"junk" * 100
    for number in range(NEW_STREAMS_MAX * 2):
        office.store[office.core.keys.command(device, number.to_bytes(8, "big")[::-1], 1)] = b"junk" * 100
    for _ in range(6):
        office.desk.exchange()
    tail = office.desk.book.tail(device, b"junkjunk")
    assert tail is not None
    assert JUNK_MAX <= len(tail.junk) <= JUNK_MAX * 2
    asked = office.asker.ask(office.desk)
    office.whole()
    assert office.desk.ran == [asked]


def test_keys_that_no_device_writes_are_nothing(office: Office) -> None:
    prefix, device = office.core.keys.commands_prefix, office.laptop_member.device_id.hex()
    for name in (
        "x",
        f"{device}/0",
        f"{device}.{'0' * 16}/x",
        f"{device}.{'a' * 16}/-000000000000001",
        "ü.x/y",
    ):
        office.store[prefix + name] = b"junk"
    asked = office.asker.ask(office.desk)
    office.whole()
    assert office.desk.ran == [asked]
    assert command_notices(office.desk.book) == {}


def test_a_request_to_another_device_that_is_put_before_this_one_does_not_open(office: Office) -> None:
    """A member seals to a tablet, and names the Core as recipient: it could not read it, and does not run it."""
    tablet = office.add("tablet")
    office.sync(office.core, office.laptop_member)
    laptop, core = office.laptop_member, office.core
    info = laptop.log.member(tablet.device_id)
    assert info is not None
    data = seal_letter(
        encode_message(request()),
        ExchangePublic.from_bytes(info.exchange),
        vault=laptop.vault,
        sender=laptop.device_id,
        recipient_id=tablet.device_id,
        log_head=laptop.log.head,
        incarnation=b"12345678",
        sequence=0,
    )
    header = Header(
        kind=Kind.COMMAND,
        channel=Channel.COMMANDS,
        vault=laptop.vault,
        sender=laptop.device_id,
        incarnation=b"12345678",
        recipient=core.device_id,
        epoch=1,
        generation=laptop.generation_key.number,
        log_head=laptop.log.head,
        sequence=0,
        previous=ZERO_HASH,
    )
    office.store[core.keys.command(laptop.device_id, b"12345678", 0)] = seal(
        header,
        [Frame(data, compress=False)],
        key=laptop.generation_key,
        signer=laptop.identity.signing,
        salt=laptop.salt(),
    )
    office.desk.exchange()
    assert office.desk.book.all_received() == []
    assert command_notices(office.desk.book)["unreadable"].count == 1


def test_a_request_under_another_devices_name_is_junk(office: Office) -> None:
    tablet = office.add("tablet")
    office.sync(office.core, office.laptop_member)
    entry = forged(
        office.laptop_member,
        office.core,
        encode_message(request()),
        incarnation=b"12345678",
        sequence=0,
        previous=ZERO_HASH,
    )
    office.store[office.core.keys.command(tablet.device_id, b"12345678", 0)] = entry
    office.whole()
    assert office.desk.ran == []
    assert command_notices(office.desk.book)["tampered"].count == 1


def test_what_no_device_of_the_vault_sent_is_not_fetched(office: Office) -> None:
    stranger = office.by_kit("stranger")
    put(office, stranger, office.core, encode_message(request()))
    for key in [key for key in office.store if "/devlog/" in key][-1:]:
        del office.store[key]
    office.desk.exchange()
    assert office.desk.book.all_received() == []
    assert office.desk.ran == []


def test_what_names_a_device_log_that_is_not_shown_waits_until_it_is(office: Office) -> None:
    office.add("tablet")
    newest = max(key for key in office.store if "/devlog/" in key)
    hidden = office.store.pop(newest)
    asked = office.desk.ask(office.asker)
    office.desk.exchange()
    office.asker.exchange()
    office.asker.work()
    assert office.asker.ran == []
    assert command_notices(office.asker.book)["peer-log-unknown"].count == 1
    office.store[newest] = hidden
    office.asker.exchange()
    office.asker.work()
    assert office.asker.ran == [asked]


def test_an_action_of_a_later_version_is_refused_and_told(office: Office) -> None:
    put(office, office.laptop_member, office.core, encode_message(request(action="format-disk")))
    office.desk.exchange()
    office.desk.work()
    (row,) = office.desk.book.all_received()
    assert row.state is ReceivedState.REFUSED
    assert "format-disk" in row.text
    assert office.desk.ran == []


def test_what_is_no_message_is_counted_and_stepped_over(office: Office) -> None:
    put(office, office.laptop_member, office.core, b"\x93\x01\x02\x03")
    asked = office.asker.ask(office.desk)
    office.whole()
    assert office.desk.ran == [asked]
    assert command_notices(office.desk.book)["unreadable"].count == 1


def test_only_the_device_that_was_asked_is_heard_about_it(office: Office) -> None:
    tablet = office.add("tablet")
    asked = office.asker.ask(office.desk)
    office.asker.exchange()
    put(office, tablet, office.laptop_member, encode_message(Report(asked, 9, CommandState.DONE, "done")))
    office.asker.exchange()
    assert office.asker.state(asked) is CommandState.SENT


def test_reports_count_by_what_they_say_in_whichever_order_they_come(office: Office) -> None:
    asked = office.asker.ask(office.desk)
    office.asker.exchange()
    said = (
        (CommandState.RUNNING, 3, CommandState.RUNNING),
        (CommandState.RUNNING, 2, CommandState.RUNNING),
        (CommandState.UNKNOWN, 1, CommandState.UNKNOWN),
        (CommandState.RUNNING, 7, CommandState.UNKNOWN),
        (CommandState.DONE, 4, CommandState.DONE),
        (CommandState.REFUSED, 8, CommandState.DONE),
        (CommandState.FAILED, 9, CommandState.DONE),
    )
    for number, (state, report, expected) in enumerate(said):
        data = encode_message(Report(asked, report, state))
        put(office, office.core, office.laptop_member, data, bytes([number + 1]) * 8)
        office.asker.exchange()
        assert office.asker.state(asked) is expected


def test_a_claim_at_another_claims_place_tells_its_asker_nothing(office: Office) -> None:
    first, second = office.asker.ask(office.desk), office.asker.ask(office.desk)
    office.asker.exchange()
    entry = forged(
        office.core,
        office.laptop_member,
        encode_message(Report(first, 0, CommandState.RUNNING)),
        incarnation=CLAIMS,
        sequence=0,
        previous=claim_hash(office.laptop_member.device_id, first),
    )
    at = claim_key(office.core, office.core.device_id, claim_hash(office.laptop_member.device_id, second))
    office.store[at] = entry
    office.asker.exchange()
    assert office.asker.state(second) is CommandState.SENT
    office.store[at] = forged(
        office.core,
        office.laptop_member,
        encode_message(Report(first, 0, CommandState.RUNNING)),
        incarnation=CLAIMS,
        sequence=0,
        previous=claim_hash(office.laptop_member.device_id, second),
    )
    office.asker.exchange()
    assert office.asker.state(first) is CommandState.SENT


def test_foreign_bytes_at_the_claims_place_run_nothing(office: Office) -> None:
    asked = office.asker.ask(office.desk)
    office.asker.exchange()
    hashed = claim_hash(office.laptop_member.device_id, asked)
    office.store[claim_key(office.core, office.core.device_id, hashed)] = b"junk" * 100
    office.whole()
    assert office.desk.ran == []
    assert office.asker.state(asked) is CommandState.UNKNOWN


def test_a_store_that_lets_both_copies_create_a_claim_and_keeps_one_is_noticed(office: Office) -> None:
    asked = office.asker.ask(office.desk, Action.DREAM_WEAVE)
    office.asker.exchange()
    office.desk.exchange()
    clone = office.desk.copied("clone.db")
    office.store = Permissive(office.store)
    clone.work()
    office.desk.work()
    assert office.desk.ran == [asked]


def test_a_device_whose_key_takes_no_letter_holds_up_nobody(office: Office) -> None:
    """As a hostile Core may add one: it can ask, and nothing can be sealed to it."""
    keyless = office.add("keyless")
    office.sync(office.core)
    put(office, keyless, office.core, encode_message(request()))
    asked = office.asker.ask(office.desk)
    office.asker.exchange()
    info = office.core.log.member(keyless.device_id)
    assert info is not None
    office.core.log._change(keyless.device_id, exchange=bytes(32))  # pyright: ignore[reportPrivateUsage]
    to_keyless = office.desk.ask(office.party("keyless", keyless))
    office.whole()
    assert office.desk.ran == [asked]
    assert office.asker.state(asked) is CommandState.DONE
    assert office.desk.state(to_keyless) is CommandState.REFUSED
