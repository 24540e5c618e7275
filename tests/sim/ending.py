"""How a simulated world ends: all faults stop, every device reaches one state (P10), nothing was lost (P1) or doubled (P2)."""

from typing import TYPE_CHECKING

from crystal_mirror.membership.authority import in_force
from crystal_mirror.repair.audit import AUDIT_MS
from crystal_mirror.replication.claim import claim
from crystal_mirror.retention.gc import snapshot_due
from crystal_mirror.snapshots.creation import make_snapshot
from crystal_mirror.types import EntryState, Origin
from tests.sim.checks import compare
from tests.sim.filing import files_on, refused_on, standing_files
from tests.sim.model import History, Violation

if TYPE_CHECKING:
    from tests.sim.device import Home
    from tests.sim.world import World

NEWCOMER_ROUNDS_MAX = 4
ROUNDS_TO_AGREE_MAX = 12
"""Rounds of every device after which all must be equal once faults have stopped."""


def agree(world: "World", *, newcomer: bool) -> int:
    """See ``World.agree``."""
    world.store.calm_down()
    world.crasher.kill_at = None
    for home in world.homes:
        home.die()
        if home.root is None and home.open() is None:
            home.root = world.root  # nobody has added it: a person gives it the kit
    for number in range(1, ROUNDS_TO_AGREE_MAX + 1):
        for home in list(world.homes):
            if (
                number % 4 == 0
            ):  # a process that starts looks at everything again, as a running one does now and then
                home.die()
                _let_audits_be_due(world)
            world.run_round(home)
            _make_snapshot_if_due(world, home)
            if number in (2, 6) and world.deceived and home.open() is not None:
                world.run(home, home.put_files_back)  # `crystal repair`
        if number == 3:
            _appoint(world)
        if not _disagreement(world):
            if newcomer:
                _join_last(world)
            _check_outcome(world)
            return number
    raise Violation(f"P10: after {ROUNDS_TO_AGREE_MAX} rounds: {_disagreement(world)}")


def _let_audits_be_due(world: "World") -> None:
    """A few hours go by: whoever has read an object looks at it again."""
    if world.has_clocks:
        world.clock.now_ms += AUDIT_MS


def _make_snapshot_if_due(world: "World", home: "Home") -> None:
    member = home.member
    if member is not None and home.now_ms and snapshot_due(member, home.now_ms):
        world.run(home, make_snapshot)


def _appoint(world: "World") -> None:
    """What a person does when no device leads any more, or the one that leads says that others are further.

    The Core's disk was put back to before it claimed the lead, or its log was, and the relay has lost its own. Where no
    device may lead, the person gives the recovery kit.
    """
    members = [(home, member) for home in world.homes if (member := home.open()) is not None]
    if any(member.is_core and not home.error.startswith("BehindTheFloor") for home, member in members):
        return
    able = [home for home, member in members if member.root is not None and in_force(member.log, member.root)]
    home = max(
        able or [home for home, _ in members],
        key=lambda home: home.member.replica.position()[:2] if home.member else (0, 0),
    )
    kit = world.root
    world.faults["claim by hand"] += 1
    home.abandons = True
    world.run(home, lambda member: claim(member, kit, force=True, abandon=True))


def _disagreement(world: "World") -> str:
    digests: dict[str, str] = {}
    for home in world.homes:
        member = home.open()
        if member is None:
            return f"{home.name} is no member: {home.error}"
        notices = member.notices.current()
        waiting = len(member.journal.names())
        if waiting or member.replica.kept(EntryState.UNSENT):
            return f"{home.name} still has {waiting} operations in its outbox; {home.error} {notices}"
        log = f"{member.log.generation} {member.log.root_number} {member.log.head.hex()[:8]}"
        position = member.replica.position()
        digests[home.name] = (
            f"{position[:2]} {member.replica.digest().hex()[:8]} {log} {home.error} {notices}"
        )
    if len({d.split(" {")[0] for d in digests.values()}) != 1:
        return f"{digests}"
    if _waits_for_a_core(world):
        return f"nobody leads, and the relay has what nobody took: {digests}"
    return next(filter(None, (_files_differ(world, home) for home in world.homes)), "")


def _waits_for_a_core(world: "World") -> bool:
    """Whether only the relay has some operation, and no device leads that could take it in: all are equal without it.

    The Core's disk was put back to before its claim, and it holds no operation any more that would show it.
    """
    members = [member for home in world.homes if (member := home.open()) is not None]
    if any(member.is_core for member in members):
        return False
    history = world.checks.histories.get(members[0].replica.position().previous)
    return history is not None and bool(_missing(world, history) & world.on_relay())


def _missing(world: "World", history: History) -> set[bytes]:
    """The operations that should be in the log and are not."""
    missing = world.accepted.keys() - world.lost - history.operations
    return missing - world.on_relay_only if world.deceived else missing


def _files_differ(world: "World", home: "Home") -> str:
    """How a device's files differ from the tree that all agree on."""
    history = world.checks.histories.get(home.member.replica.position().previous) if home.member else None
    if home.disk is None or home.book is None or history is None:
        return ""
    home.book.confirm()  # the person says yes to whatever the fuse asks
    here, there = files_on(home.disk), standing_files(history)
    refused = refused_on(home.disk)
    if world.deceived:  # of what the relay lost and no disk has any more, the name is left
        disks = [files_on(each.disk).values() for each in world.homes if each.disk is not None]
        left = {content for contents in disks for content in contents}
        there = {path: content for path, content in there.items() if path in here or content in left}
    if {path: content for path, content in here.items() if path in there or path not in refused} == there:
        return ""
    return f"{home.name} has {sorted(here.items() - there.items())}, and lacks {sorted(there.items() - here.items())}"


def _join_last(world: "World") -> None:
    newcomer = world.add_home("newcomer")
    world.run_round(newcomer)
    for number in range(2 * NEWCOMER_ROUNDS_MAX):
        _let_audits_be_due(world)
        for home in world.homes:
            home.die()
            world.run_round(home)
            _make_snapshot_if_due(world, home)
        if number >= 1 and not _disagreement(world):
            break
    last = newcomer.open()
    if last is None or _disagreement(world):
        raise Violation(
            f"P10: a device that joins last does not reach the state of the others: {_disagreement(world)}"
        )
    for home in world.homes:
        member = home.open()
        for generation in range(1, member.log.generation + 1) if member else ():
            if member is not None and member.key_for(generation) is None:
                raise Violation(f"P10: {home.name} lacks the key of generation {generation}")
    world.homes.remove(newcomer)


def _check_outcome(world: "World") -> None:
    """Every operation that was accepted and not lost is in the log all agree on, and nothing else is."""
    member = world.homes[0].open()
    assert member is not None, "checked before"
    history = world.checks.histories.get(member.replica.position().previous)
    assert history is not None, "checked after the step"
    missing = _missing(world, history)
    world.filing.p1_no_file_is_lost(
        history.state,
        {home.name: home for home in world.homes},
        excused=world.deceived and any(home.restores for home in world.homes),
    )
    if missing:
        raise Violation(f"P1: lost: {[world.accepted[name] for name in sorted(missing)]}")
    if history.operations - world.accepted.keys():
        raise Violation("P2: the log holds operations that nobody made")
    for home in world.homes:
        assert home.replica is not None
        damage = home.replica.check() or compare(home.replica, history.state)
        if damage:
            raise Violation(f"P2: {home.name}: {damage}")
        shown = home.member.replica.provisional_origins() if home.member else set[Origin]()
        if shown:
            raise Violation(f"P2: {home.name} still shows provisional rows")
