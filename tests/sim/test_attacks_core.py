"""A Core that was superseded and revoked, and one that is hostile while it leads."""

from collections.abc import Callable

import pytest

from crystal_crypto.bundle import seal_bundle
from crystal_crypto.entry import Kind, parse
from crystal_crypto.hierarchy import GenerationKey
from crystal_crypto.identity import ExchangePublic
from crystal_mirror.devicelog.log import ROOT_SENDER, DeviceLog
from crystal_mirror.devicelog.records import Bundles, Details, GenerationRecord
from crystal_mirror.errors import KeysWithheld
from crystal_mirror.membership.authority import Authority, seal_record
from crystal_mirror.notices import Notice
from crystal_mirror.types import EntryState, Position
from tests.sim.administering import go_on_regardless, put_out, renew
from tests.sim.members_script import MembersStage
from tests.sim.test_attacks import records
from tests.sim.thief import Thief, member_of, unmoved


class Overthrown(MembersStage):
    """The laptop has taken the lead, replaced the root and revoked the old Core, which goes on as if it led."""

    def __init__(self) -> None:
        super().__init__("overthrown")
        world = self.world
        self.write(self.core)
        self.sync(self.core)
        disk = self.core.backup()
        self.end_of_epoch: Position = member_of(self.core).replica.position()
        self.claim(self.laptop)
        kit, new = world.root, world.new_root()
        self.laptop.roots.append(new)
        self.act(self.laptop, lambda member: put_out(member, self.core.identity.id, kit, new))
        self.core.restore(disk)
        lead = member_of(self.laptop).log.lead
        assert lead is not None
        go_on_regardless(world, self.core, lead.slot)
        assert member_of(self.core).is_core, "as far as it wants to know"
        self.sync(self.laptop, self.phone, self.laptop)
        self.thief = Thief(world, self.core.identity)

    def strike(self, attack: Callable[[], object]) -> set[str]:
        raised = unmoved(self.world, attack)
        for home in (self.laptop, self.phone):
            self.write(home)
        self.world.agree()
        return raised


def _voids(overthrown: Overthrown) -> int:
    return len(member_of(overthrown.laptop).replica.kept(EntryState.VOID))


def test_an_ex_core_that_goes_on_as_before_is_read_by_nobody() -> None:
    """The real program, with the log as it stood before: it takes in what the others send, and publishes."""
    overthrown = Overthrown()

    def attack() -> None:
        for _ in range(3):
            overthrown.write(overthrown.core)
            overthrown.world.run_round(overthrown.core)

    overthrown.strike(attack)


@pytest.mark.parametrize("kind", [Kind.BATCH, Kind.SEAL])
@pytest.mark.parametrize("where", ["behind the seal of its epoch", "in the new epoch", "in an epoch to come"])
def test_an_ex_core_that_writes_is_stepped_over(where: str, kind: Kind) -> None:
    overthrown = Overthrown()
    epoch, sequence, previous = overthrown.end_of_epoch

    def attack() -> None:
        here: Position = member_of(overthrown.laptop).replica.position()
        place = {
            "behind the seal of its epoch": Position(epoch, sequence + 1, previous),
            "in the new epoch": here,
            "in an epoch to come": Position(here.epoch + 1, 0, here.previous),
        }[where]
        overthrown.thief.batch(place, kind=kind)

    overthrown.strike(attack)
    assert _voids(overthrown) == (where == "in the new epoch")


def test_an_ex_core_cannot_take_the_place_of_the_seal_that_ended_it() -> None:
    """The relay shows an entry of the ex-Core where the seal stands: who has read the seal is told, and stays."""
    overthrown = Overthrown()
    world = overthrown.world
    key = overthrown.thief.keys.mirror(*overthrown.end_of_epoch[:2])
    seal = world.store.objects[key]
    assert parse(seal).header.kind is Kind.SEAL
    overthrown.thief.batch(overthrown.end_of_epoch)
    for home in (overthrown.laptop, overthrown.phone):
        before = member_of(home).replica.digest()
        home.die()
        world.run_round(home)
        assert member_of(home).replica.digest() == before
    world.store.objects[key] = seal
    world.agree()


@pytest.mark.parametrize("posing", ["as itself", "as the Core", "as the root"])
@pytest.mark.parametrize(
    "says", ["adds an accomplice", "takes the lead", "renews the keys", "replaces the root"]
)
def test_an_ex_core_that_signs_the_device_log_is_stepped_over(says: str, posing: str) -> None:
    overthrown = Overthrown()
    who = {
        "as itself": overthrown.core.identity.id,
        "as the Core": overthrown.laptop.identity.id,
        "as the root": ROOT_SENDER,
    }
    overthrown.phone, phone = overthrown.core, overthrown.phone
    record = records(overthrown)[says]
    overthrown.phone = phone
    overthrown.strike(
        lambda: overthrown.thief.append(record, Authority(who[posing], overthrown.core.identity.signing))
    )
    assert member_of(overthrown.laptop).log.void_slots == 1


def test_an_ex_core_that_kept_the_old_root_is_no_better_off() -> None:
    overthrown = Overthrown()
    old = overthrown.world.roots[0]
    overthrown.phone, phone = overthrown.core, overthrown.phone
    said = records(overthrown)
    overthrown.phone = phone

    def attack() -> None:
        for record in said.values():
            overthrown.thief.append(record, Authority.of_root(old))

    overthrown.strike(attack)
    assert member_of(overthrown.laptop).log.void_slots == len(said)


class Hostile(MembersStage):
    """The Core leads, and seals keys as it likes; its device log is right in all that everybody can check."""

    def __init__(self) -> None:
        super().__init__("hostile")
        self.thief = Thief(self.world, self.core.identity)

    def seal(
        self, tamper: Callable[[DeviceLog, GenerationKey, Bundles], Bundles], *, link: bytes = b""
    ) -> int:
        """A new generation whose keys for the devices are as ``tamper`` gives them. Returns the slot."""
        log, core = self.thief.log(), member_of(self.core)
        key = GenerationKey(log.generation + 1, b"new key!" * 4)
        assert log.root is not None

        def sealed(device: bytes, exchange: bytes) -> bytes:
            return seal_bundle(
                ExchangePublic.from_bytes(exchange),
                generation=key,
                secret=core.secret,
                vault=log.vault,
                recipient_id=device,
                log_head=log.head,
            )

        bundles = tuple(sorted((info.device, sealed(info.device, info.exchange)) for info in log.active()))
        record = GenerationRecord(
            key.number, sealed(ROOT_SENDER, log.root.recovery), tamper(log, key, bundles)
        )
        self.world.store.objects[self.thief.keys.log(log.next_slot)] = seal_record(
            log,
            record,
            by=Authority.of_device(core),
            key=key,
            salt=self.thief.salt(),
            details=Details("", "", 0),
            older=(GenerationKey(key.number - 1, link) if link else core.generation_key,),
        )
        return log.next_slot

    def without(self, device: bytes) -> Callable[[DeviceLog, GenerationKey, Bundles], Bundles]:
        return lambda _log, _key, bundles: tuple(
            (name, bytes(114) if name == device else bundle) for name, bundle in bundles
        )


def test_a_core_that_seals_nothing_to_a_device_is_named_there_and_nothing_is_lost() -> None:
    hostile = Hostile()
    world, phone = hostile.world, hostile.phone
    hostile.write(phone)
    hostile.seal(hostile.without(phone.identity.id))
    hostile.write(phone)
    assert not world.run_round(phone)
    assert phone.error.startswith(KeysWithheld.__name__)
    victim = member_of(phone)
    assert Notice.KEYS_WITHHELD in victim.notices.current()
    hostile.write(phone)
    waiting = len(victim.journal.names())
    assert waiting >= 3
    assert victim.replica.provisional_origins(), "what it records meanwhile is found there"
    hostile.sync(hostile.core, hostile.laptop)
    assert not world.run_round(phone)
    assert len(victim.journal.names()) == waiting
    kit = world.root
    hostile.act(hostile.core, lambda member: renew(member, kit))
    world.agree()
    assert member_of(phone).key_for(2) is not None, "by the newest key it has those before"


def test_a_core_that_gives_one_device_another_key_is_not_believed() -> None:
    hostile = Hostile()
    phone = hostile.phone

    def swap(log: DeviceLog, key: GenerationKey, bundles: Bundles) -> Bundles:
        info = log.member(phone.identity.id)
        assert info is not None
        other = seal_bundle(
            ExchangePublic.from_bytes(info.exchange),
            generation=GenerationKey(key.number, b"another!" * 4),
            secret=member_of(hostile.core).secret,
            vault=log.vault,
            recipient_id=info.device,
            log_head=log.head,
        )
        return tuple((name, other if name == info.device else bundle) for name, bundle in bundles)

    hostile.seal(swap)
    hostile.write(phone)
    hostile.world.run_round(phone)
    assert phone.error.startswith(KeysWithheld.__name__)
    hostile.sync(hostile.core, hostile.laptop)
    kit = hostile.world.root
    hostile.act(hostile.core, lambda member: renew(member, kit))
    hostile.world.agree()


@pytest.mark.parametrize("how", ["left out", "named twice", "a stranger instead", "out of order"])
def test_keys_for_another_set_of_devices_are_void(how: str) -> None:
    """Nobody is left out silently: an entry whose keys are not for exactly the active devices is none."""
    hostile = Hostile()

    def tamper(_log: DeviceLog, _key: GenerationKey, bundles: Bundles) -> Bundles:
        first, *rest = bundles
        return {
            "left out": tuple(rest),
            "named twice": (first, first, *rest),
            "a stranger instead": ((b"a stranger's id!", first[1]), *rest),
            "out of order": (*rest, first),
        }[how]

    unmoved(hostile.world, lambda: hostile.seal(tamper))
    assert member_of(hostile.laptop).log.generation == 1
    hostile.world.agree()


def test_a_core_that_cuts_the_chain_of_keys_cuts_it_for_newcomers_which_say_so() -> None:
    """Who had the older keys keeps them; a newcomer does not skip what it cannot open, and names it."""
    hostile = Hostile()
    hostile.seal(lambda _log, _key, bundles: bundles, link=bytes(32))
    hostile.sync(hostile.core, hostile.laptop, hostile.phone)
    for home in hostile.world.homes:
        assert member_of(home).key_for(1) is not None
    late = hostile.world.add_home("late")
    hostile.sync(late)
    hostile.world.run_round(late)
    assert member_of(late).key_for(1) is None
    assert Notice.MIRROR_UNREADABLE in member_of(late).notices.current()
    assert member_of(late).replica.position().sequence == 0
