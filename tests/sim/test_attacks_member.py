"""A device that belongs to the vault and does more than it may: poses as Core, as another one, as the root; administers."""

import pytest

from crystal_crypto.entry import Kind
from crystal_mirror.devicelog.log import ROOT_SENDER
from crystal_mirror.devicelog.records import NameRecord
from crystal_mirror.membership.authority import Authority
from crystal_mirror.notices import Notice
from crystal_mirror.replication.claim import claim
from crystal_mirror.types import EntryState, Origin
from tests.sim.administering import add, grant, put_out, renew
from tests.sim.members_script import MembersStage
from tests.sim.test_attacks import records
from tests.sim.thief import Thief, member_of, unmoved


class Inside(MembersStage):
    """The phone is a Node without the root. ``thief`` has its keys, and the relay does what it wants."""

    def __init__(self) -> None:
        super().__init__("inside")
        self.thief = Thief(self.world, self.phone.identity)

    def strike(self, attack: object) -> set[str]:
        assert callable(attack)
        raised = unmoved(self.world, attack)
        for home in (self.laptop, self.phone):
            self.write(home)
        self.world.agree()
        return raised


@pytest.mark.parametrize("sender", ["its own", "the Core's"])
@pytest.mark.parametrize("kind", [Kind.BATCH, Kind.SEAL])
def test_a_node_that_poses_as_core_is_stepped_over(kind: Kind, sender: str) -> None:
    inside = Inside()

    def attack() -> None:
        core = member_of(inside.core)
        inside.thief.batch(
            core.replica.position(), core.device_id if sender == "the Core's" else None, kind=kind
        )

    inside.strike(attack)
    core = inside.core.open()
    assert core is not None
    assert len(core.replica.kept(EntryState.VOID)) == 1


def test_a_node_that_poses_as_another_node_is_named_and_the_other_goes_on() -> None:
    inside = Inside()
    laptop = inside.laptop.open()
    assert laptop is not None
    stream = laptop.journal.stream()
    assert stream is not None
    place = Origin(laptop.device_id, stream.incarnation, stream.sequence)
    assert Notice.STREAM_TAMPERED in inside.strike(lambda: inside.thief.offer(place))
    laptop = inside.laptop.open()
    assert laptop is not None
    after = laptop.journal.stream()
    assert after is not None
    assert after.incarnation != stream.incarnation, "what it had to say, it said in another stream"


def test_a_node_that_gives_its_own_entries_the_names_of_another_nodes_takes_nothing_from_it() -> None:
    """The name is used up; the other device finds other bytes under it and gives its operation another name."""
    inside = Inside()
    laptop = inside.laptop.open()
    phone = inside.phone.open()
    assert laptop is not None
    assert phone is not None
    theirs, ours = laptop.journal.stream(), phone.journal.stream()
    assert theirs is not None
    assert ours is not None
    inside.thief.offer(
        Origin(phone.device_id, b"another3", 0),
        named=Origin(laptop.device_id, theirs.incarnation, theirs.sequence),
    )
    inside.world.checks.histories.forbidden.clear()  # a member may say what it wants, in its own name at least
    inside.world.run_round(inside.core)
    core = inside.core.open()
    assert core is not None
    history = inside.world.checks.histories.get(core.replica.position().previous)
    assert history is not None
    planted = history.operations - inside.world.accepted.keys()
    assert len(planted) == 1
    inside.write(inside.laptop)
    inside.world.accepted.update(dict.fromkeys(planted, inside.world.new_operation(inside.world.draw)))
    inside.world.lost |= planted
    inside.world.agree()


POSES = ("as itself", "as the Core", "as the root")
SAID = [(says, posing) for says in sorted(records(Inside())) for posing in POSES]
SAID.remove(("renames itself", "as itself"))  # that it may


@pytest.mark.parametrize(("says", "posing"), SAID)
def test_a_node_that_signs_the_device_log_is_stepped_over(says: str, posing: str) -> None:
    inside = Inside()
    who = {
        "as itself": inside.phone.identity.id,
        "as the Core": inside.core.identity.id,
        "as the root": ROOT_SENDER,
    }
    record = records(inside)[says]
    inside.strike(lambda: inside.thief.append(record, Authority(who[posing], inside.phone.identity.signing)))
    for home in inside.world.homes:
        member = home.open()
        assert member is not None
        assert member.log.void_slots == 1


def test_a_node_may_name_itself_and_that_is_all() -> None:
    inside = Inside()
    inside.thief.append(NameRecord(inside.phone.identity.id))
    inside.sync(inside.core)
    core = inside.core.open()
    assert core is not None
    assert core.log.void_slots == 0
    inside.world.agree()


@pytest.mark.parametrize("act", ["add", "revoke", "renew", "grant", "claim"])
def test_the_program_itself_refuses_what_a_node_may_not(act: str) -> None:
    """And says so before it writes anything."""
    inside = Inside()
    world, phone, laptop = inside.world, inside.phone, inside.laptop.identity.id
    other = world.new_root()
    newcomer = world.add_home("newcomer", has_kit=False)
    before = dict(world.store.objects)
    match act:
        case "revoke":
            world.run(phone, lambda member: put_out(member, laptop, other, other))
        case "renew":
            world.run(phone, lambda member: renew(member, other))
        case "grant":
            world.run(phone, lambda member: grant(member, phone.identity.id))
        case "claim":
            world.run(phone, lambda member: claim(member, other, force=True))
        case _:
            world.run(phone, lambda member: add(member, newcomer))
    assert phone.error.partition(":")[0] in ("NotAllowed", "Unready", "RootHeld")
    assert {key for key in world.store.objects if "/cursor/" not in key} == {
        key for key in before if "/cursor/" not in key
    }
