"""Adding, revoking, renewing, replacing: each may be repeated after a crash anywhere, and does once what it was asked to."""

from collections.abc import Callable
from typing import Any

import pytest

from crystal_crypto.errors import Malformed, TooLarge
from crystal_crypto.identity import DeviceIdentity, ExchangePublic
from crystal_mirror.devicelog import log as devicelog
from crystal_mirror.errors import NotAllowed, NotAMember, Revoked, RootHeld, Unready
from crystal_mirror.membership import administration
from crystal_mirror.membership.administration import (
    GENERATION_DAYS_MAX,
    NewDevice,
    add_device,
    generation_due,
    grant_lead,
    rename,
    renew_generation,
    revoke,
    rotate_root,
)
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import device_name, devices
from crystal_mirror.replication.claim import claim
from crystal_mirror.requests import Flow, PutNew
from tests.mirror.household import Household, newcomer
from tests.mirror.support import new_device, new_root

DAY_MS = 24 * 3_600_000


@pytest.fixture
def home() -> Household:
    home = Household()
    home.laptop, home.lost = home.add("laptop"), home.add("lost")
    home.sync(home.core)
    return home


def add(home: Household, name: str = "late", by: Member | None = None, **rights: bool) -> Flow[Any]:
    return add_device(
        by or home.core, newcomer(new_device(name)), name=name, system="Linux", now_ms=3, **rights
    )


OTHER_ROOT = new_root("another root")
FLOWS: dict[str, Callable[[Household], Flow[Any]]] = {
    "add": add,
    "revoke": lambda home: revoke(home.core, home.lost.device_id, now_ms=3),
    "generation": lambda home: renew_generation(home.core, now_ms=3),
    "root": lambda home: rotate_root(home.core, home.root, OTHER_ROOT, now_ms=3),
    "grant": lambda home: grant_lead(home.core, home.laptop.device_id, now_ms=3),
    "name": lambda home: rename(home.core, home.laptop.device_id, "desk", now_ms=3),
}


@pytest.mark.parametrize("what", sorted(set(FLOWS) - {"generation"}))
def test_what_was_done_is_not_done_again(home: Household, what: str) -> None:
    home.store.run(FLOWS[what](home))
    entries = len(home.core.log.events)
    home.store.run(FLOWS[what](home))
    assert len(home.core.log.events) == entries


@pytest.mark.parametrize("what", FLOWS)
def test_a_crash_at_any_request_leaves_nothing_half_done_and_the_repeat_ends_it(what: str) -> None:
    requests = 0
    while True:
        home = Household()
        home.laptop, home.lost = home.add("laptop"), home.add("lost")
        home.sync(home.core)
        before = len(home.core.log.events)
        if _stopped_after(home, FLOWS[what](home), requests):
            break
        home.core.log = _read_again(home.core)
        home.core.ring = _ring(home.core)
        # Who renews decides by the generation that it knows, so a crash behind the entry may make one more.
        home.store.run(FLOWS[what](home))
        made = len(home.core.log.events) - before
        assert made == 1 or (what == "generation" and made <= 2)
        assert home.core.log.void_slots == 0
        home.core.generation_key  # noqa: B018  (it is there)
        requests += 1
    assert requests >= 3


def _stopped_after(home: Household, flow: Flow[Any], requests: int) -> bool:
    """Drops the flow after so many requests were answered. Returns whether it had ended before."""
    reply: Any = None
    try:
        for _ in range(requests):
            reply = home.store.answer(flow.send(reply))
        flow.send(reply)
    except StopIteration:
        return True
    flow.close()
    return False


def _read_again(member: Member) -> Any:
    from crystal_mirror.membership.member import load_log

    return load_log(member.journal, member.vault)


def _ring(member: Member) -> Any:
    from crystal_mirror.devicelog.keyring import KeyRing

    return KeyRing.of_device(member.identity, member.log)


def test_an_added_device_has_its_name_and_all_keys_and_is_told_to_everybody(home: Household) -> None:
    home.store.run(renew_generation(home.core, now_ms=3))
    added = home.store.run(add(home, "late", grant=True))
    assert added.fresh
    assert not home.store.run(add(home, "late", grant=True)).fresh
    late = home.add("late")
    assert late.generation_key.number == 2
    assert late.key_for(1) is not None
    home.read(home.laptop)
    listed = devices(home.laptop)[-1]
    assert listed.details is not None
    assert (listed.details.name, listed.details.by, listed.info.grant) == (
        "late",
        home.core.device_id,
        True,
    )
    assert (added.slot, added.entry_hash) == (listed.info.slot, listed.info.entry.hash)


def test_a_newcomer_with_another_devices_id_or_a_revoked_identity_is_refused(home: Household) -> None:
    fresh = new_device("fresh")
    posing = DeviceIdentity(home.laptop.device_id, fresh.signing, fresh.exchange)
    with pytest.raises(Malformed):
        home.store.run(add_device(home.core, newcomer(posing), name="x", system="", now_ms=3))
    home.revoke(home.lost)
    with pytest.raises(Revoked):
        home.store.run(add(home, "lost"))


@pytest.mark.parametrize("taken", ["signing", "exchange", "id of the root", "no key"])
def test_a_newcomer_that_the_log_would_not_take_is_refused_before_anything_is_written(
    home: Household, taken: str
) -> None:
    fresh, theirs = new_device("fresh"), home.lost.identity
    home.revoke(home.lost)
    posing = {
        "signing": NewDevice(fresh.id, theirs.signing.public, fresh.exchange.public),
        "exchange": NewDevice(fresh.id, fresh.signing.public, theirs.exchange.public),
        "id of the root": NewDevice(bytes(16), fresh.signing.public, fresh.exchange.public),
        "no key": NewDevice(fresh.id, fresh.signing.public, ExchangePublic.from_bytes(bytes(32))),
    }[taken]
    before = dict(home.store)
    with pytest.raises((Malformed, NotAllowed)):
        home.store.run(add_device(home.core, posing, name="x", system="", now_ms=3))
    assert dict(home.store) == before


def test_a_vault_that_has_had_as_many_devices_as_it_may_says_so(
    home: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (administration, devicelog):
        monkeypatch.setattr(module, "MEMBERS_MAX", 3)
    before = dict(home.store)
    with pytest.raises(TooLarge, match="3 devices"):
        home.store.run(add(home))
    assert dict(home.store) == before
    assert not home.store.run(add(home, "laptop")).fresh, "who is in stays in"


@pytest.mark.parametrize("what", FLOWS)
def test_a_device_that_neither_leads_nor_has_the_root_administers_nothing(home: Household, what: str) -> None:
    home.core, home.root = home.laptop, new_root("no root of this vault")
    home.sync(home.laptop)
    before = dict(home.store)
    with pytest.raises(NotAllowed):
        home.store.run(FLOWS[what](home))
    assert dict(home.store) == before


@pytest.mark.parametrize("what", sorted(set(FLOWS) - {"root"}))
def test_a_device_that_came_by_the_kit_administers_too(home: Household, what: str) -> None:
    core, home.core = home.core, home.by_kit("by kit")
    home.sync(home.core)
    home.store.run(FLOWS[what](home))
    home.read(core)
    assert core.log.events[-1].sender == bytes(16)
    assert core.log.head == home.core.log.head


def test_a_device_revokes_neither_itself_nor_the_core_nor_a_stranger(home: Household) -> None:
    with pytest.raises(NotAllowed):
        home.store.run(revoke(home.core, home.core.device_id, now_ms=3))
    with pytest.raises(NotAMember):
        home.store.run(revoke(home.core, new_device("stranger").id, now_ms=3))
    by_kit = home.by_kit("by kit")
    home.sync(by_kit)
    with pytest.raises(Unready):
        home.store.run(revoke(by_kit, home.core.device_id, now_ms=3))


def test_a_device_that_had_the_root_is_out_only_once_the_root_is_another(home: Household) -> None:
    thief = home.by_kit("thief")
    home.sync(home.core)
    with pytest.raises(RootHeld):
        home.store.run(revoke(home.core, thief.device_id, now_ms=3))
    home.store.run(rotate_root(home.core, home.root, OTHER_ROOT, now_ms=3))
    assert [home.core.log.held_root(m.device_id) for m in (home.core, thief)] == [True, False]
    assert home.store.run(revoke(home.core, thief.device_id, now_ms=3)).fresh
    with pytest.raises(NotAllowed):
        home.store.run(rotate_root(home.core, home.root, new_root("the thief's"), now_ms=3))


def test_a_root_from_the_kit_does_for_a_device_that_keeps_none(home: Household) -> None:
    home.sync(home.laptop)
    report = home.store.run(revoke(home.laptop, home.lost.device_id, now_ms=3, root=home.root))
    assert report.fresh
    assert home.laptop.root is None


def test_a_claimant_revokes_the_old_core_once_its_epoch_has_ended(home: Household) -> None:
    heir = home.by_kit("heir")
    home.sync(heir)
    home.store.run(rotate_root(heir, home.root, OTHER_ROOT, now_ms=3))
    heir.root = OTHER_ROOT
    home.store.run(claim(heir, OTHER_ROOT))
    assert home.store.run(revoke(heir, home.core.device_id, now_ms=4)).fresh


def test_a_claimant_whose_epoch_has_not_begun_revokes_nobody(home: Household) -> None:
    """Where the last epoch ends is open still: what the old Core's readers count of it could differ."""
    heir = home.by_kit("heir")
    home.sync(heir)
    flow: Flow[Any] = claim(heir, heir.root)
    reply: Any = None
    while not isinstance(request := flow.send(reply), PutNew) or "/mirror/" not in request.key:
        reply = home.store.answer(request)
    flow.close()
    assert heir.is_core
    with pytest.raises(Unready):
        home.store.run(revoke(heir, home.lost.device_id, now_ms=3))
    home.sync(heir)
    assert home.store.run(revoke(heir, home.lost.device_id, now_ms=3)).fresh


def test_nothing_is_given_to_a_device_that_is_out(home: Household) -> None:
    home.revoke(home.lost)
    for flow in (
        grant_lead(home.core, home.lost.device_id, now_ms=3),
        rename(home.core, home.lost.device_id, "x", now_ms=3),
    ):
        with pytest.raises(NotAMember):
            home.store.run(flow)


def test_a_name_and_a_grant_are_read_by_all_and_the_system_stays(home: Household) -> None:
    home.store.run(rename(home.core, home.laptop.device_id, "desk", now_ms=3))
    home.store.run(grant_lead(home.core, home.laptop.device_id, now_ms=4))
    home.read(home.laptop)
    assert device_name(home.laptop, home.laptop.device_id) == "desk"
    listed = next(entry for entry in devices(home.laptop) if entry.is_this)
    assert listed.details is not None
    assert (listed.details.system, listed.info.grant) == ("Linux", True)


def test_a_generation_is_due_on_the_core_after_thirty_days_by_any_clock(home: Household) -> None:
    home.store.run(renew_generation(home.core, now_ms=1000 * DAY_MS))
    month = GENERATION_DAYS_MAX * DAY_MS
    assert not generation_due(home.core, 1000 * DAY_MS + month)
    assert generation_due(home.core, 1000 * DAY_MS + month + 1)
    assert generation_due(home.core, 1000 * DAY_MS - month - 1), "made by a clock that was wrong"
    home.read(home.laptop)
    assert not generation_due(home.laptop, 2000 * DAY_MS), "the Core's work"


def test_one_device_with_a_key_that_nothing_can_be_sealed_to_does_not_keep_new_keys_from_all_others(
    home: Household,
) -> None:
    from crystal_mirror.devicelog.records import AddRecord
    from crystal_mirror.devicelog.sync import append
    from crystal_mirror.membership.authority import Authority, seal_record

    broken = new_device("broken")
    record = AddRecord(broken.id, broken.signing.public.to_bytes(), bytes(32), False, False, 1, bytes(114))
    core = home.core

    def build(log: Any) -> bytes | None:
        if log.member(broken.id):
            return None
        by = Authority.of_device(core)
        return seal_record(log, record, by=by, key=core.generation_key, salt=core.salt())

    home.store.run(append(core.log, core.journal, core.keys, build))
    assert home.store.run(renew_generation(core, now_ms=3)) == 2
    home.read(home.laptop)
    assert home.laptop.generation_key.number == 2
    assert home.store.run(revoke(core, broken.id, now_ms=3)).fresh
