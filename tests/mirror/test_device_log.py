"""The device log: who may say what, and that nobody else can."""

import pytest

from crystal_crypto.entry import parse
from crystal_crypto.hierarchy import GenerationKey, Root
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.log import ROOT_SENDER, DeviceLog, Verdict
from crystal_mirror.devicelog.records import (
    AddRecord,
    LeadRecord,
    NameRecord,
    Record,
    encode_details,
    entry_details,
)
from crystal_mirror.devicelog.sync import read_log, restore_log
from crystal_mirror.errors import LogForked, WrongVault
from crystal_mirror.membership.authority import Authority, seal_record
from crystal_mirror.membership.founding import found, join, root_keys
from crystal_mirror.membership.member import load_keys, load_log
from crystal_mirror.notices import Notice, NoticeBoard
from crystal_mirror.store_keys import StoreKeys
from crystal_node.device.journal import SqliteJournal
from tests.mirror.logs import Logbook
from tests.mirror.support import DETAILS, Objects, new_device, new_root, seeded


class Vault:
    """A founded vault: a Core, its root, its journal, and the store."""

    def __init__(self) -> None:
        self.root: Root = new_root()
        self.core: DeviceIdentity = new_device("core")
        self.store = Objects()
        self.journal = SqliteJournal.open(":memory:")
        self.store.run(found(self.core, self.root, self.journal, seeded("found"), DETAILS))
        self.log: DeviceLog = load_log(self.journal, self.root.vault)
        self.keys = StoreKeys(self.root.vault)
        self.generation: GenerationKey = root_keys(self.root, self.log)[0]

    def add_record(self, device: DeviceIdentity) -> AddRecord:
        return AddRecord(
            device=device.id,
            signing=device.signing.public.to_bytes(),
            exchange=device.exchange.public.to_bytes(),
            grant=False,
            holds_root=False,
            generation=1,
            bundle=bytes(64),
        )

    def seal(self, record: Record, sender: bytes, signer: DeviceIdentity | None) -> bytes:
        return seal_record(
            self.log,
            record,
            by=Authority(sender, signer.signing if signer else self.root.admin),
            key=self.generation,
            salt=bytes(24),
        )

    def join(self, name: str) -> DeviceIdentity:
        device = new_device(name)
        self.store.run(
            join(device, self.root, SqliteJournal.open(":memory:"), seeded(name + "/join"), DETAILS)
        )
        self.store.run(read_log(self.log, self.journal, self.keys))
        return device


@pytest.fixture
def vault() -> Vault:
    return Vault()


def test_founding_makes_a_vault_that_its_device_leads(vault: Vault) -> None:
    assert [verdict for *_, verdict in vault.journal.log_entries()] == [False, False, False]
    assert vault.log.lead is not None
    assert (vault.log.lead.epoch, vault.log.lead.device) == (1, vault.core.id)
    key, _ = load_keys(vault.core, vault.log)
    details = entry_details(vault.log.members()[0].named, key)
    assert details == DETAILS


@pytest.mark.parametrize("more", [b"\xc0", b"\x91" * 5000 + b"\xc0", b"\xa1\xff"])
def test_details_of_a_later_version_are_read_and_ones_without_end_are_none(more: bytes) -> None:
    book = Logbook.founded()
    written = encode_details(DETAILS)
    frame = bytes([written[0] + 1]) + written[1:] + more
    data = book.seal(NameRecord(book.core.id), book.core, frames=[frame])
    assert book.log.would_take(data)
    assert entry_details(parse(data), book.key(1)) in (DETAILS, None)


def test_founding_can_be_repeated_after_a_crash_at_any_request() -> None:
    root, core = new_root(), new_device("core")
    for crash_after in range(1, 12):
        store, journal = Objects(), SqliteJournal.open(":memory:")
        flow = found(core, root, journal, seeded("one"), DETAILS)
        reply = None
        for _ in range(crash_after):
            try:
                reply = store.answer(flow.send(reply))
            except StopIteration:
                break
        flow.close()
        store.run(found(core, root, journal, seeded("two"), DETAILS))
        log = load_log(journal, root.vault)
        assert len(store) == 3
        assert log.void_slots == 0
        assert log.lead is not None
        load_keys(core, log)


def test_a_device_joins_by_the_root_and_gets_the_same_keys(vault: Vault) -> None:
    laptop = vault.join("laptop")
    assert [info.device for info in vault.log.members()] == [vault.core.id, laptop.id]
    assert vault.log.members()[1].by_root
    ours, theirs = load_keys(vault.core, vault.log), load_keys(laptop, vault.log)
    assert ours[1].state_key == theirs[1].state_key


def test_another_vaults_root_cannot_join(vault: Vault) -> None:
    with pytest.raises(WrongVault):
        vault.store.run(
            join(new_device("x"), new_root("other"), SqliteJournal.open(":memory:"), seeded("x"), DETAILS)
        )


def test_a_member_that_does_not_lead_cannot_add_a_device(vault: Vault) -> None:
    laptop = vault.join("laptop")
    sealed = vault.seal(vault.add_record(new_device("intruder")), laptop.id, laptop)
    assert vault.log.extend(sealed) is Verdict.VOID
    assert len(vault.log.members()) == 2


def test_a_member_that_does_not_lead_cannot_take_the_lead(vault: Vault) -> None:
    laptop = vault.join("laptop")
    record = LeadRecord(2, laptop.id, bytes(16))
    assert vault.log.extend(vault.seal(record, laptop.id, laptop)) is Verdict.VOID


def test_a_member_that_poses_as_the_root_is_void(vault: Vault) -> None:
    laptop = vault.join("laptop")
    record = LeadRecord(2, laptop.id, bytes(16))
    assert vault.log.extend(vault.seal(record, ROOT_SENDER, laptop)) is Verdict.VOID


def test_a_member_that_poses_as_the_core_is_void(vault: Vault) -> None:
    laptop = vault.join("laptop")
    record = LeadRecord(2, laptop.id, bytes(16))
    assert vault.log.extend(vault.seal(record, vault.core.id, laptop)) is Verdict.VOID


def test_the_core_may_add_and_hand_over(vault: Vault) -> None:
    laptop = new_device("laptop")
    assert vault.log.extend(vault.seal(vault.add_record(laptop), vault.core.id, vault.core)) is Verdict.VALID
    record = LeadRecord(2, laptop.id, bytes(16))
    assert vault.log.extend(vault.seal(record, vault.core.id, vault.core)) is Verdict.VALID
    assert vault.log.lead is not None
    assert vault.log.lead.device == laptop.id


@pytest.mark.parametrize("epoch", [1, 3, 99])
def test_an_epoch_out_of_turn_is_void(vault: Vault, epoch: int) -> None:
    record = LeadRecord(epoch, vault.core.id, bytes(16))
    assert vault.log.extend(vault.seal(record, ROOT_SENDER, None)) is Verdict.VOID


def test_a_device_is_added_once(vault: Vault) -> None:
    sealed = vault.seal(vault.add_record(vault.core), ROOT_SENDER, None)
    assert vault.log.extend(sealed) is Verdict.VOID


def test_junk_does_not_jam_the_log(vault: Vault) -> None:
    for slot in range(3, 8):
        vault.store[vault.keys.log(slot)] = b"junk" * slot
    laptop = vault.join("laptop")
    assert vault.log.member(laptop.id) is not None
    assert vault.log.void_slots == 5
    assert [void for *_, void in vault.journal.log_entries()] == [False] * 3 + [True] * 5 + [False]


def test_an_entry_replayed_in_a_later_slot_is_void(vault: Vault) -> None:
    vault.store[vault.keys.log(3)] = vault.store[vault.keys.log(2)]
    vault.store.run(read_log(vault.log, vault.journal, vault.keys))
    assert vault.log.void_slots == 1
    assert vault.log.lead is not None
    assert vault.log.lead.epoch == 1


def test_a_relay_that_shows_another_head_is_named(vault: Vault) -> None:
    board = NoticeBoard(vault.journal)
    board.begin()
    vault.store[vault.keys.log(2)] = vault.store[vault.keys.log(1)]
    with pytest.raises(LogForked):
        vault.store.run(read_log(vault.log, vault.journal, vault.keys, board))
    board.save()
    assert Notice.LOG_FORKED in board.current()


def test_a_relay_that_forgets_the_log_is_named_and_gets_it_back(vault: Vault) -> None:
    before = dict(vault.store)
    vault.store.clear()
    board = NoticeBoard(vault.journal)
    board.begin()
    assert vault.store.run(read_log(vault.log, vault.journal, vault.keys, board)) is False
    board.save()
    assert Notice.LOG_ROLLED_BACK in board.current()
    assert vault.store.run(restore_log(vault.log, vault.journal, vault.keys)) == 3
    assert dict(vault.store) == before


def test_every_flipped_bit_of_an_entry_makes_it_void(vault: Vault) -> None:
    laptop = new_device("laptop")
    sealed = vault.seal(vault.add_record(laptop), vault.core.id, vault.core)
    for at in range(len(sealed)):
        damaged = bytearray(sealed)
        damaged[at] ^= 1
        log = load_log(vault.journal, vault.root.vault)
        assert log.extend(bytes(damaged)) is Verdict.VOID, f"byte {at}"


def test_names_of_devices_are_not_in_the_store(vault: Vault) -> None:
    assert all(b"laptop" not in data and b"Linux" not in data for data in vault.store.values())
    assert parse(vault.store[vault.keys.log(1)]).public
