"""From one device's copy of the logs to a relay that has lost them: also what its Core had sealed and not sent."""

from typing import NamedTuple

import apsw
import pytest

from crystal_core.replica import Replica
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.errors import LogForked
from crystal_mirror.membership.cursors import put_cursor, read_cursors
from crystal_mirror.membership.founding import join
from crystal_mirror.membership.member import Member, load_log
from crystal_mirror.operations import Remember
from crystal_mirror.repair.recovery import (
    MissingEntries,
    adopt_outbox,
    log_complete,
    missing,
    put_back_log,
    put_back_mirror,
)
from crystal_mirror.replication.claim import claim
from crystal_mirror.replication.collect import collect
from crystal_mirror.store_keys import StoreKeys
from crystal_mirror.streams.outbox import push
from crystal_mirror.streams.reoffers import META_HELD
from crystal_mirror.types import EntryState
from crystal_node.device.journal import SqliteJournal
from crystal_node.safekeeping.recovery.source_home import KEPT_VALUES
from tests.mirror.household import MODEL, Household, has, same
from tests.mirror.support import DETAILS, Objects, new_device, seeded


class Copies(NamedTuple):
    """A device's databases, as they were when it was lost."""

    journal: bytes
    replica: Replica


def _copied(member: Member) -> Copies:
    assert isinstance(member.journal, SqliteJournal)
    assert isinstance(member.replica, Replica)
    return Copies(member.journal.connection.serialize("main"), member.replica.clone())


def _brought_back(home: Household, copies: Copies, store: Objects, name: str = "new") -> Member:
    """What a restore does, up to where the mirror is to be put back."""
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", copies.journal)
    journal = SqliteJournal(connection)
    with journal.transaction():
        journal.become_anothers(KEPT_VALUES, beginning=META_HELD)
    vault = home.root.vault
    log, keys = load_log(journal, vault), StoreKeys(vault)
    if not store.run(log_complete(log, journal, keys)):
        store.run(put_back_log(log, journal, keys))
    identity = new_device(name)
    store.run(join(identity, home.root, journal, seeded(name), DETAILS, vault))
    member = Member.open(identity, vault, journal, copies.replica.clone(), seeded(name + "/run"), home.root)
    adopt_outbox(member)
    return member


def _say(member: Member, text: str) -> None:
    member.accept(Remember(text, "fact", "cc-mini", 7))


def _sealed_and_not_sent(home: Household, text: str) -> None:
    """The Core dies between the commit of a batch and its first byte on the relay."""
    _say(home.core, text)
    home.store.run(push(home.core))
    home.store.run(collect(home.core, MODEL))
    assert home.core.replica.kept(EntryState.UNSENT)


def _mirror(store: Objects, member: Member) -> dict[str, bytes]:
    return {key: data for key, data in store.items() if key.startswith(member.keys.epoch_prefix(1))}


def test_what_the_lost_core_had_sealed_goes_to_its_own_slot_on_the_new_relay() -> None:
    home = Household()
    laptop = home.add("laptop")
    _say(laptop, "Known to all.")
    home.sync(laptop, home.core, laptop)
    before = _mirror(home.store, home.core)
    _sealed_and_not_sent(home, "Sealed, not sent.")
    copies = _copied(home.core)
    (unsent,) = copies.replica.kept(EntryState.UNSENT)
    digest = copies.replica.digest()
    store = Objects()
    new = _brought_back(home, copies, store)
    assert store.run(put_back_mirror(new)) == len(before) + 1
    after = _mirror(store, new)
    assert after == before | {new.keys.mirror(unsent.epoch, unsent.sequence): unsent.data}
    assert store.run(put_back_mirror(new)) == 0, "a second time there is nothing to do"
    store.run(claim(new, home.root, force=True, abandon=True))
    assert new.is_core
    assert new.replica.digest() == digest
    home.store.clear()
    home.store.update(store)
    home.sync(new, laptop, new, laptop)
    assert has(laptop, "Sealed, not sent.")
    assert same(new, laptop)


def test_where_another_core_went_on_meanwhile_what_was_not_sent_is_offered_again() -> None:
    home = Household()
    laptop = home.add("laptop", grant=True)
    home.sync(laptop, home.core, laptop)
    _sealed_and_not_sent(home, "Sealed, not sent.")
    copies = _copied(home.core)
    home.store.run(claim(laptop, None, force=True))
    _say(laptop, "Under the new Core.")
    home.sync(laptop)
    new = _brought_back(home, copies, home.store)
    home.store.run(put_back_mirror(new))
    assert not new.replica.kept(EntryState.UNSENT)
    home.sync(new, laptop, new, laptop)
    for text in ("Sealed, not sent.", "Under the new Core."):
        assert has(new, text)
        assert has(laptop, text)
    assert same(new, laptop)
    assert not new.journal.names()


def test_what_had_reached_the_relay_unnoticed_is_not_put_twice() -> None:
    home = Household()
    laptop = home.add("laptop")
    home.sync(laptop, home.core, laptop)
    _sealed_and_not_sent(home, "Sealed, and sent before it was noted.")
    copies = _copied(home.core)
    (unsent,) = copies.replica.kept(EntryState.UNSENT)
    home.store[home.core.keys.mirror(unsent.epoch, unsent.sequence)] = unsent.data
    home.sync(laptop)
    new = _brought_back(home, copies, home.store)
    assert home.store.run(put_back_mirror(new)) == 0
    assert not new.replica.kept(EntryState.UNSENT)
    assert not new.journal.names() or has(new, "Sealed, and sent before it was noted.")
    home.store.run(claim(new, home.root, force=True))
    home.sync(new, laptop)
    assert same(new, laptop)


def test_others_that_had_more_are_named() -> None:
    home = Household()
    laptop, tablet = home.add("laptop"), home.add("tablet")
    home.sync(laptop, tablet, home.core, laptop)
    copies = _copied(laptop)
    _say(home.core, "Heard of by the tablet alone.")
    home.sync(home.core, tablet)
    home.store.run(put_cursor(tablet))
    home.store.run(read_cursors(laptop))
    later = _copied(laptop)  # it has read where the others are, and not followed yet
    store = Objects()
    new = _brought_back(home, Copies(later.journal, copies.replica), store)
    store.run(put_back_mirror(new))
    position = home.core.replica.position()
    found = missing(new)
    assert MissingEntries(tablet.device_id, position.epoch, position.sequence) in found
    assert {each.device for each in found} <= {tablet.device_id, home.core.device_id}


def test_a_relay_that_shows_another_device_log_is_refused() -> None:
    home = Household()
    laptop = home.add("laptop")
    home.sync(laptop)
    copies = _copied(laptop)
    other = Household()
    other.add("somebody else's")
    with pytest.raises(LogForked):
        _brought_back(home, copies, other.store)


def test_the_root_alone_opens_every_generation_and_revoked_devices_stay_out() -> None:
    home = Household()
    lost = [home.add(f"lost-{number}") for number in range(3)]
    for number, device in enumerate(lost):
        _say(home.core, f"Of generation {number + 1}.")
        home.sync(home.core)
        home.revoke(device)
    _say(home.core, "Of generation 4.")
    home.sync(home.core)
    log = load_log(home.core.journal, home.root.vault)
    ring = KeyRing.of_root(home.root, log)
    assert [ring.key(number) for number in (1, 2, 3, 4)] == [home.core.key_for(n) for n in (1, 2, 3, 4)]
    store = Objects()
    new = _brought_back(home, _copied(home.core), store)
    store.run(put_back_mirror(new))
    assert all(has(new, f"Of generation {number}.") for number in (1, 2, 3, 4))
    assert all(new.key_for(number) == ring.key(number) for number in (1, 2, 3, 4))
    assert not any(new.log.is_active(device.device_id) for device in lost)
