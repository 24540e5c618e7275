"""What people do to a simulated vault's membership, as flows that may be started again after a crash at any point."""

from crystal_crypto.hierarchy import Root
from crystal_mirror.membership.administration import (
    NewDevice,
    add_device,
    grant_lead,
    rename,
    renew_generation,
    revoke,
    rotate_root,
)
from crystal_mirror.membership.authority import in_force
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.held_entries import accept_held, drop_held
from crystal_mirror.requests import Flow
from crystal_mirror.round import sync_round
from tests.sim.device import Home, spoken
from tests.sim.embedding import MODEL
from tests.sim.world import World

NOW_MS = 1_800_000_000_000


def add(member: Member, newcomer: Home, *, grant: bool = False) -> Flow[None]:
    identity = newcomer.identity
    keys = NewDevice(identity.id, identity.signing.public, identity.exchange.public)
    yield from add_device(member, keys, name=spoken(newcomer.name), system="sim", now_ms=NOW_MS, grant=grant)


def put_out(member: Member, device: bytes, old: Root, new: Root) -> Flow[None]:
    """Revokes as a person does it who has the recovery kit at hand: sync, another root if the device had this one, revoke."""
    yield from sync_round(member, MODEL)
    if member.log.held_root(device) and in_force(member.log, old):
        yield from rotate_root(member, old, new, now_ms=NOW_MS)
    yield from revoke(member, device, now_ms=NOW_MS, root=new if in_force(member.log, new) else old)


def renew(member: Member, kit: Root) -> Flow[None]:
    yield from renew_generation(member, now_ms=NOW_MS, root=kit)


def replace_root(member: Member, old: Root, new: Root) -> Flow[None]:
    yield from rotate_root(member, old, new, now_ms=NOW_MS)


def grant(member: Member, device: bytes) -> Flow[None]:
    yield from grant_lead(member, device, now_ms=NOW_MS)


def call(member: Member, device: bytes, name: str) -> Flow[None]:
    yield from rename(member, device, spoken(name), now_ms=NOW_MS)


def accept_left(member: Member, device: bytes) -> Flow[None]:
    yield from accept_held(member, device)


def drop_left(world: World, member: Member, device: bytes) -> Flow[None]:
    """The Core drops it wherever else it is kept, in the outbox of who revoked the device too: it need not be in the log."""
    yield from sync_round(member, MODEL)
    if member.is_core:
        here = {name.digest for name in member.journal.names()}  # what waits here is not held
        world.lost |= (world.on_relay(device, held=True) & world.accepted.keys()) - here
    yield from drop_held(member, device)


def go_on_regardless(world: World, home: Home, slot: int | None = None) -> None:
    """A revoked device puts its own device log back to before it was out (or to before ``slot``), and never looks at what comes
    behind."""
    info = world.outsiders.truth.member(home.identity.id)
    assert info is not None
    assert info.revoked is not None, "only a revoked device has anything to disregard"
    first = info.revoked.slot if slot is None else slot
    home.die()
    home.journal.execute("DELETE FROM device_log WHERE slot >= ?", (first,))
    world.store.hidden_from[home.name] = f"v/{world.vault.hex()}/devlog/{first:016d}"


def condone(world: World, device: bytes) -> None:
    """The owner accepts what is held of a revoked device: from here on it may be in the log, and need not."""
    forbidden = world.checks.histories.forbidden
    theirs = {name for name in forbidden if world.made_by.get(name) == device}
    forbidden -= theirs
    world.lost |= theirs
    world.accepted.update({name: world.made[name] for name in theirs})
