"""A relay that shows devices different device logs: it withholds a revocation, forks the log, rolls it back, or replays it."""

from collections.abc import Callable

import pytest

from crystal_mirror.errors import LogForked
from crystal_mirror.notices import Notice
from crystal_mirror.requests import List, Listing
from tests.sim.administering import call, put_out, renew
from tests.sim.device import Home
from tests.sim.lies import Honest
from tests.sim.members_script import MembersStage
from tests.sim.store import SimStore
from tests.sim.thief import Thief, member_of, unmoved


class TwoLogs(Honest):
    """Shows each device its own device log from some slot on. What a device writes there, only its side sees."""

    name = "two logs"

    def __init__(self, sides: dict[str, str], first: str) -> None:
        self._sides = sides
        self._first = first
        self._own: dict[tuple[str, str], bytes] = {}

    def _split(self, key: str) -> bool:
        return "/devlog/" in key and key >= self._first

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        return self._own.get((self._sides[device], key)) if self._split(key) else store.objects.get(key)

    def listing(self, store: SimStore, device: str, request: List) -> Listing | None:
        if "/devlog/" not in request.prefix:
            return None
        own = [key for side, key in self._own if side == self._sides[device]]
        common = [key for key in store.objects if key.startswith(request.prefix) and not self._split(key)]
        return Listing(tuple(key for key in sorted([*own, *common]) if key > request.after), False)

    def put_new(self, store: SimStore, device: str, key: str, body: bytes) -> bool | None:
        if not self._split(key):
            return None
        return self._own.setdefault((self._sides[device], key), body) is body

    def show_all(self, store: SimStore, side: str) -> None:
        """From here on everybody is shown what this side wrote."""
        store.objects.update({key: body for (whose, key), body in self._own.items() if whose == side})
        store.lie = None


class Withheld(MembersStage):
    """The phone is revoked by the Core; the laptop is not told. The phone goes on, and the relay lets it."""

    def __init__(self) -> None:
        super().__init__("withheld")
        world = self.world
        sides = {"core": "knows", "laptop": "does not", "phone": "does not", "newcomer": "knows"}
        self.lie = TwoLogs(sides, f"v/{world.vault.hex()}/devlog/{self.next_slot():016d}")
        world.store.lie = self.lie
        world.deceived = True
        self.thief = Thief(world, self.phone.identity)
        kit = world.root
        device = self.phone.identity.id
        self.act(self.core, lambda member: put_out(member, device, kit, kit))
        assert self.phone in world.former

    def next_slot(self) -> int:
        return member_of(self.core).log.next_slot


def raised(home: Home) -> set[str]:
    return set(member_of(home).notices.raised())


def test_who_knows_of_a_revocation_takes_nothing_from_the_device_though_others_are_not_told() -> None:
    withheld = Withheld()
    world, core, laptop, phone = withheld.world, withheld.core, withheld.laptop, withheld.phone
    before = member_of(core).replica.digest()
    withheld.write(phone)
    withheld.sync(phone, laptop, phone)
    withheld.sync(core)
    laptop.die()
    withheld.sync(laptop)
    assert member_of(core).replica.digest() == before
    assert Notice.HELD_REVOKED in raised(core)
    assert raised(laptop) >= {Notice.PEER_AHEAD}, (
        "the Core's entries and cursor name a log that is hidden here"
    )
    withheld.lie.show_all(world.store, "knows")
    world.agree()


def test_what_a_device_that_is_not_told_can_still_be_made_to_do() -> None:
    """The documented limit: what it records is sealed so that the revoked device can read it, and the Core takes that, because
    it is the laptop's own. Nothing that the Core writes is readable; the laptop reads none of it, and says that a log hides.
    """
    withheld = Withheld()
    world, core, laptop = withheld.world, withheld.core, withheld.laptop
    since = set(world.store.objects)
    withheld.write(laptop)
    withheld.sync(laptop)
    streams = [key for key in set(world.store.objects) - since if "/conversations/" in key]
    assert [withheld.thief.reads(key) for key in streams] == [True]
    place = member_of(laptop).replica.position()
    since = set(world.store.objects)
    withheld.sync(core)
    published = [key for key in set(world.store.objects) - since if "/mirror/" in key]
    assert [withheld.thief.reads(key) for key in published] == [False]
    withheld.sync(laptop)
    assert member_of(laptop).replica.position() == place
    assert Notice.PEER_AHEAD in raised(laptop)
    assert member_of(laptop).journal.names(), "not durable, as far as it can tell: kept"
    withheld.lie.show_all(world.store, "knows")
    withheld.write(laptop)
    since = set(world.store.objects)
    withheld.sync(laptop)
    streams = [key for key in set(world.store.objects) - since if "/conversations/" in key]
    assert streams
    assert not [key for key in streams if withheld.thief.reads(key)], "from the moment that it is told"
    world.agree()


def _forked() -> tuple[MembersStage, TwoLogs]:
    """Core and laptop both write the log's next slot: each is told that it was first."""
    stage = MembersStage("forked")
    world = stage.world
    slot = member_of(stage.core).log.next_slot
    lie = TwoLogs(
        {"core": "one", "phone": "one", "laptop": "other", "newcomer": "one"},
        f"v/{world.vault.hex()}/devlog/{slot:016d}",
    )
    world.store.lie, world.deceived = lie, True
    kit = world.root
    device = stage.phone.identity.id
    stage.act(stage.core, lambda member: put_out(member, device, kit, kit))
    stage.act(stage.laptop, lambda member: call(member, stage.core.identity.id, "another name"))
    return stage, lie


def test_a_fork_of_the_device_log_is_found_out_by_what_the_other_side_writes() -> None:
    """Cursors, entries and batches name the log that their writer has read."""
    stage, _ = _forked()
    for home in (stage.core, stage.laptop):
        stage.write(home)
    for home in (stage.core, stage.laptop, stage.core, stage.laptop):
        stage.world.run_round(home)
    for home in (stage.core, stage.laptop):
        assert Notice.PEER_AHEAD in raised(home), home.name


def test_a_fork_of_the_device_log_is_found_out_by_cursors_alone() -> None:
    stage, _ = _forked()
    for home in (stage.core, stage.laptop):
        stage.world.run_round(home)
        home.die()
    for home in (stage.core, stage.laptop):
        stage.world.run_round(home)
        assert Notice.PEER_AHEAD in raised(home), home.name


def test_a_fork_that_is_joined_again_stops_the_side_that_is_given_up_with_the_revocation_kept() -> None:
    stage, lie = _forked()
    lie.show_all(stage.world.store, "other")
    stage.world.run_round(stage.core)
    assert stage.core.error.startswith(LogForked.__name__)
    core = member_of(stage.core)
    assert Notice.LOG_FORKED in core.notices.current()
    assert not core.log.is_active(stage.phone.identity.id), "what it has verified it keeps"
    assert core.log.generation == 2


def _log_objects(stage: MembersStage) -> dict[str, bytes]:
    return {key: stage.world.store.objects[key] for key in stage.world.store.keys("devlog")}


@pytest.mark.parametrize("how", ["rolled back", "replayed"])
def test_a_device_log_from_before_the_revocation_brings_nobody_back(how: str) -> None:
    """Who has read that a device is out keeps that, names the relay, and puts the entry back."""
    stage = MembersStage("back")
    world = stage.world
    before = _log_objects(stage)
    device = stage.out(stage.phone)
    stage.sync(stage.laptop)
    thief = Thief(world, stage.phone.identity)
    newest = world.store.keys("devlog")[-1]

    def attack() -> None:
        world.deceived = True
        if how == "rolled back":
            for key in _log_objects(stage).keys() - before.keys():
                del world.store.objects[key]
        else:
            world.store.objects[newest] = before[min(before)]
        thief.store.hidden_from.clear()
        world.run_round(stage.phone)

    if how == "rolled back":
        assert Notice.LOG_ROLLED_BACK in unmoved_and_named(stage, attack)
        world.agree()
        assert not member_of(stage.core).log.is_active(device)
    else:
        attack()
        for home in (stage.core, stage.laptop):
            world.run_round(home)
            assert home.error.startswith(LogForked.__name__)
            assert not member_of(home).log.is_active(device)


def unmoved_and_named(stage: MembersStage, attack: Callable[[], None]) -> set[str]:
    now = unmoved(stage.world, attack)
    for home in stage.world.homes:
        now |= raised(home)
    return now


def test_a_device_that_was_away_for_generations_and_is_shown_the_log_piece_by_piece_seals_nothing_to_the_past() -> (
    None
):
    """The relay shows it one entry more in each round. It can be kept behind, never sent back, and reads all in the end."""
    stage = MembersStage("piecewise")
    world, phone = stage.world, stage.phone
    phone.die()
    kit = world.root
    for _ in range(3):
        stage.act(stage.core, lambda member: renew(member, kit))
        stage.write(stage.laptop)
        stage.sync(stage.laptop, stage.core)
    keys = world.store.keys("devlog")
    seen: list[int] = []
    for key in keys[member_of(phone).log.next_slot :]:
        world.store.hidden_from[phone.name] = key
        stage.write(phone)
        world.run_round(phone)
        seen.append(member_of(phone).log.generation)
    assert seen == sorted(seen) == [1, 2, 3]
    del world.store.hidden_from[phone.name]
    world.agree()
