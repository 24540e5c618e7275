"""A stolen root: what it can do as long as it is in force, and that it can do nothing once it was replaced."""

import pytest

from crystal_crypto.errors import WrongKey
from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.devicelog.records import AddRecord
from crystal_mirror.membership.authority import Authority
from crystal_mirror.types import Origin
from tests.mirror.support import seeded
from tests.sim.administering import put_out, renew, replace_root
from tests.sim.device import Home
from tests.sim.members_script import MembersStage
from tests.sim.test_attacks import records
from tests.sim.thief import Thief, member_of, unmoved


class Stolen(MembersStage):
    """Somebody has photographed the recovery kit. The thief's device keys are its own."""

    def __init__(self, *, rotated: bool) -> None:
        super().__init__("stolen")
        self.stolen: Root = self.world.root
        self.thief = Thief(self.world, DeviceIdentity.generate(seeded("burglar")))
        if rotated:
            new = self.world.new_root()
            self.core.roots.append(new)
            self.act(self.core, lambda member: replace_root(member, self.stolen, new))
            kit = self.world.root
            self.act(self.core, lambda member: renew(member, kit))
            self.sync(self.laptop, self.phone)

    def strike(self, attack: object) -> set[str]:
        assert callable(attack)
        raised = unmoved(self.world, attack)
        for home in (self.laptop, self.phone):
            self.write(home)
        self.world.agree()
        return raised

    def burgle(self) -> Home:
        """The thief's machine runs the program with the stolen root."""
        home = self.world.add_home("burglar")
        home.root = self.stolen
        return home


SAYS = sorted(records(Stolen(rotated=True)))


@pytest.mark.parametrize("says", SAYS)
def test_a_root_that_was_replaced_signs_nothing_any_more(says: str) -> None:
    stolen = Stolen(rotated=True)
    record = records(stolen)[says]
    stolen.strike(lambda: stolen.thief.append(record, Authority.of_root(stolen.stolen)))
    for home in stolen.world.homes:
        assert member_of(home).log.void_slots == 1


def test_a_root_that_was_replaced_opens_no_keys() -> None:
    stolen = Stolen(rotated=True)
    with pytest.raises(WrongKey):
        KeyRing.of_root(stolen.stolen, stolen.thief.log())


def test_a_root_that_was_replaced_joins_nothing_and_the_program_says_so_before_it_writes() -> None:
    stolen = Stolen(rotated=True)
    world = stolen.world
    burglar = stolen.burgle()
    before = dict(world.store.objects)
    burglar.start()
    while burglar.busy:
        burglar.advance(lambda request: world.store.perform(burglar.name, request))
    assert burglar.error.startswith("WrongVault")
    assert "replaced" in burglar.error
    assert world.store.objects == before
    world.homes.remove(burglar)
    world.agree()


def test_the_root_cannot_be_put_back() -> None:
    """Not even by the root in force: a root that was replaced is never the root again."""
    stolen = Stolen(rotated=True)
    log = stolen.thief.log()
    assert log.root is not None
    back = type(log.root)(
        stolen.stolen.admin.public.to_bytes(),
        stolen.stolen.recovery.public.to_bytes(),
        stolen.core.identity.id,
        log.generation,
        bytes(114),
    )
    stolen.strike(lambda: stolen.thief.append(back, Authority.of_root(stolen.world.root)))


def test_what_a_stolen_root_can_do_until_it_is_replaced_and_how_that_is_ended() -> None:
    """The documented limit. Its holder takes itself in and reads everything; all devices show that a device was added, by the
    root. Replacing the root and revoking the device ends it: the thief keeps what it had."""
    stolen = Stolen(rotated=False)
    world, core = stolen.world, stolen.core
    burglar = stolen.burgle()
    stolen.sync(burglar, burglar)
    assert member_of(burglar).replica.digest() == member_of(core).replica.digest(), (
        "it reads the whole memory"
    )
    stolen.sync(core, stolen.laptop)
    for home in (core, stolen.laptop):
        event = member_of(home).log.events[-1]
        assert isinstance(event.record, AddRecord)
        assert event.record.device == burglar.identity.id, "and everybody sees that it came, by the root"
    kit, new = world.root, world.new_root()
    stolen.act(core, lambda member: put_out(member, burglar.identity.id, kit, new))
    stolen.thief = Thief(world, burglar.identity)
    since = set(world.store.objects)
    for home in (core, stolen.laptop):
        stolen.write(home)
        stolen.sync(home, core)
    new_objects = set(world.store.objects) - since
    assert new_objects
    assert not [key for key in new_objects if stolen.thief.reads(key)]
    again = records(stolen)["adds an accomplice"]

    def attack() -> None:
        stolen.thief.append(again, Authority.of_root(stolen.stolen))
        stolen.thief.offer(Origin(burglar.identity.id, b"from now", 0))

    stolen.strike(attack)
