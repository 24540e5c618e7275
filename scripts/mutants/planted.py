"""Mutations that once survived, one by one: each stands in docs/mutations.md with the tests that find it.

They replace text that a module has exactly once, so that a change of that text is noticed (tests/house/test_mutants.py).
"""

import ast
from typing import NamedTuple

from scripts.mutants.session import Mutant
from scripts.mutants.targets import PROJECT


class Planted(NamedTuple):
    """In `module`, `old` becomes `new`. `what` names it in docs/mutations.md; `target` is whose tests have to find it."""

    target: str
    module: str
    what: str
    old: str
    new: str


def _mirror(module: str, what: str, old: str, new: str) -> Planted:
    return Planted("mirror", f"mirror/crystal_mirror/{module}.py", what, old, new)


PLANTED = (
    _mirror("streams/reoffers", "re-offers nothing", "for kept in entries:", "for kept in ():"),
    _mirror("replication/pull", "any digest agrees", "if digest != batch.digest:", "if False:"),
    _mirror(
        "replication/pull",
        "the position is not checked in the transaction",
        "if transaction.position() != position:",
        "if False:",
    ),
    _mirror(
        "replication/pull",
        "the tail agrees with any bytes ahead",
        "if ahead is not None and judge_slot(ahead, position, member.log).kind in (SlotKind.BATCH, SlotKind.SEAL):",
        "if ahead is not None:",
    ),
    _mirror(
        "replication/pull",
        "unsent entries are replayed",
        "position.sequence or kept[0].state is EntryState.UNSENT:",
        "position.sequence:",
    ),
    _mirror(
        "replication/pull",
        "the floor is raised over unsent entries",
        "    unsent = member.replica.kept(EntryState.UNSENT)\n    position = member.replica.position()\n    epoch, end",
        "    unsent = []\n    position = member.replica.position()\n    epoch, end",
    ),
    _mirror("replication/collect", "a gap in a stream is no gap", "elif sequence > expected:", "elif False:"),
    _mirror(
        "replication/collect",
        "any previous hash is right",
        "if not _follows(member, place, entry, inbox):",
        "if False:",
    ),
    _mirror(
        "replication/collect",
        "a batch is made while entries are unsent",
        "!= position or transaction.kept(EntryState.UNSENT):",
        "!= position:",
    ),
    _mirror(
        "replication/claim",
        "a claim looks at no floor",
        "if (position.epoch, position.sequence) < read_floor(member):",
        "if (position.epoch, position.sequence) < (0, 0):",
    ),
    _mirror(
        "retention/gc",
        "the floor is that of the newest kept snapshot",
        "candidates = [min(kept.announced",
        "candidates = [max(kept.announced",
    ),
    _mirror(
        "retention/gc",
        "what the newest snapshot shares is condemned with an older one",
        "needed = set(newest.names) | blobs_in_use(member)",
        "needed = blobs_in_use(member)",
    ),
    _mirror(
        "retention/gc",
        "the sweep takes older snapshots that are kept",
        "for kept in state.snapshots for name in kept.names} | blobs_in_use(member)",
        "for kept in state.snapshots[-1:] for name in kept.names} | blobs_in_use(member)",
    ),
    _mirror(
        "retention/gc",
        "the sweep takes packs",
        "for kept in state.snapshots for name in kept.names} | blobs_in_use(member)",
        "for kept in state.snapshots for name in kept.names} | set(referenced(member.replica, member.secret))",
    ),
    _mirror(
        "retention/gc",
        "conversations go at once",
        "wait = 0 if force else APPLIED_MS",
        "wait = 0",
    ),
    _mirror(
        "retention/gc",
        "an older snapshot goes at once",
        "now_ms - newest.since >= SUPERSEDED_MS",
        "now_ms - newest.since >= 0",
    ),
    _mirror(
        "snapshots/packs",
        "a pack is dead one slot too early",
        "if (pack.epoch, pack.first + pack.count) <= floor]",
        "if (pack.epoch, pack.first + pack.count - 1) <= floor]",
    ),
    _mirror(
        "snapshots/packs",
        "a pack is dead one slot too late",
        "if (pack.epoch, pack.first + pack.count) <= floor]",
        "if (pack.epoch, pack.first + pack.count + 1) <= floor]",
    ),
    _mirror(
        "snapshots/packs",
        "the next pack begins a slot too early",
        "ends = [(pack.epoch, pack.first + pack.count) for",
        "ends = [(pack.epoch, pack.first + pack.count - 1) for",
    ),
    _mirror(
        "snapshots/packs",
        "the next pack begins a slot too late",
        "ends = [(pack.epoch, pack.first + pack.count) for",
        "ends = [(pack.epoch, pack.first + pack.count + 1) for",
    ),
    _mirror(
        "snapshots/packs",
        "a pack is asked for the slot behind its end",
        "place[1] < pack.first + pack.count:",
        "place[1] <= pack.first + pack.count:",
    ),
    _mirror(
        "snapshots/creation",
        "a snapshot's digest is not compared",
        "if sums.digest() != digest:",
        "if False:",
    ),
    _mirror(
        "replication/rebuild",
        "a snapshot announced at the fork is kept",
        "announced_at >= place",
        "announced_at > place",
    ),
    _mirror(
        "replication/rebuild", "packs listed at the fork are kept", "listed_at >= place", "listed_at > place"
    ),
    _mirror(
        "replication/rebuild", "a base announced at the fork keeps its slot", "slot >= fork:", "slot > fork:"
    ),
    _mirror(
        "replication/rebuild",
        "a fork right at the base is below it",
        "fork >= (base.epoch, base.sequence)",
        "fork > (base.epoch, base.sequence)",
    ),
    _mirror(
        "history/slots",
        "a seal may lead to its own epoch",
        "if next_epoch <= position.epoch",
        "if next_epoch < position.epoch",
    ),
    Planted(
        "files",
        "mirror/crystal_mirror/files/round.py",
        "a put that names a condemned blob counts",
        "if any(replica.is_condemned(name) for name in offer.names):",
        "if False:",
    ),
    Planted(
        "core",
        "core/crystal_core/state/memories.py",
        "a memory may supersede itself",
        "        if target == forget_hash:\n",
        "        if False:\n",
    ),
    _mirror(
        "streams/outbox",
        "a place that is taken counts as stored",
        "            if there != row.sealed:\n                yield from _give_way",
        "            if False:\n                yield from _give_way",
    ),
    _mirror(
        "streams/outbox",
        "settles while entries are unsent",
        "    if member.replica.kept(EntryState.UNSENT):\n        return 0",
        "    if False:\n        return 0",
    ),
    _mirror(
        "streams/outbox",
        "settles a row whose place is open",
        "elif member.replica.done(Origin(member.device_id, row.incarnation, row.sequence)):",
        "else:",
    ),
    _mirror(
        "streams/outbox",
        "its own signature counts at any place",
        "    return stands_at(\n        entry, vault=member.vault",
        "    return True or stands_at(\n        entry, vault=member.vault",
    ),
    _mirror(
        "streams/outbox",
        "more is done than was made, and the stream goes on",
        "<= ack + 1 <= stream.sequence",
        "<= ack + 1",
    ),
    _mirror(
        "streams/outbox",
        "only the first row is put back",
        "transaction.set_all_states(OutboxState.STORED, OutboxState.PENDING)",
        "transaction.set_row_state(row.incarnation, row.sequence, OutboxState.PENDING)",
    ),
    _mirror(
        "handover/core",
        "says that it drained, and did not",
        "if asker is None or not (yield from drain()) or not member.is_core:",
        "if asker is None or not member.is_core:",
    ),
)


def planted_mutants(target: str) -> list[Mutant]:
    return [_mutant(one) for one in PLANTED if one.target == target]


def _mutant(planted: Planted) -> Mutant:
    """Raises ValueError if the module does not have that text exactly once."""
    text = (PROJECT / planted.module).read_text(encoding="utf-8")
    if text.count(planted.old) != 1:
        raise ValueError(f"{planted.module} does not have once: {planted.old}")
    begin = text.index(planted.old)
    first = text.count("\n", 0, begin) + 1
    lines = (first, first + planted.old.strip("\n").count("\n"))
    tree = ast.parse(text.replace(planted.old, planted.new))
    return Mutant(planted.module, "", planted.what, lines, "", tree, None)
