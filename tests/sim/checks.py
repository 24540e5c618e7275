"""The promises, checked on one device after every step of it.

P1  what a device accepted is in its outbox or in the mirror log that it keeps; let go of only when durable
P2  its rows are those of the oracle for the history at which it stands (so every effect is there, once)
P3  rows, acks, position and digest belong together: the digest is that of the rows, and the one that the Core stated
P4  nothing is applied behind a seal, and only what the epoch's own Core signed
P5  epoch and position go back only by a wipe; device log, generation, root, revoked devices and floors never do
P7  a text that could be found here still can, unless it was forgotten (the files' part of it: `model`)
"""

import json
from collections.abc import Set
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec

from crystal_core.database import Database
from crystal_core.state import files as filerows
from crystal_core.state.vectors import float16_vectors
from crystal_crypto.entry import Kind, parse
from crystal_mirror.entries.batches import Announced
from crystal_mirror.entries.control_state import META_RESTORE, first_position, published_floor, read_base
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.pull import read_floor
from crystal_mirror.replication.rebuild import rebuild_pending
from crystal_mirror.snapshots.restore import restore_pending
from crystal_mirror.types import START, EntryState, KeptEntry, Position
from tests.mirror.independent_memories import Kept
from tests.sim.device import Home
from tests.sim.model import Histories, History, State, Violation


@dataclass
class _Baseline:
    """What must not go back, as it was after the last step; of one disk (a restored one is another)."""

    restores: int
    wipes: int = 0
    place: tuple[int, int] = (0, 0)
    previous: bytes = b""
    floor: tuple[int, int] = (0, 0)
    published: tuple[int, int] = (0, 0)
    log: list[bytes] = field(default_factory=list[bytes])
    generation: int = 0
    root_number: int = 0
    revoked: frozenset[bytes] = frozenset()
    version: tuple[int, ...] = ()
    kept: frozenset[bytes] = frozenset()
    """Operations in mirror entries that are kept and known to be on the relay."""
    unsent: frozenset[bytes] = frozenset()
    outbox: frozenset[bytes] = frozenset()
    rows: frozenset[bytes] = frozenset()
    """Operations whose effect is in the rows."""
    texts: dict[bytes, str] = field(default_factory=dict[bytes, str])
    """What a person finds here, by keyed hash: rows of the state and provisional ones."""


class Checks:
    """`acknowledged`: hashes of everything whose write the relay ever called durable."""

    def __init__(self, histories: Histories, acknowledged: set[bytes]) -> None:
        self.histories = histories
        self.count = 0
        self._acknowledged = acknowledged
        self._baselines: dict[str, _Baseline] = {}
        self._accepted: dict[str, set[bytes]] = {}

    def accepted(self, home: Home, operation: bytes) -> None:
        """From now on `home` answers for this operation (hash of its bytes)."""
        self._accepted.setdefault(home.name, set()).add(operation)

    def released(self, home: Home) -> set[bytes]:
        """Lets `home` off everything, because its disk was put back; returns what it answered for."""
        return self._accepted.pop(home.name, set())

    def held(self, home: Home) -> frozenset[bytes]:
        """The operations that this disk holds in its outbox, in its log or in its rows, as of the last step."""
        baseline = self._baselines.get(home.name)
        if baseline is None or baseline.restores != home.restores:
            return frozenset()
        return baseline.kept | baseline.unsent | baseline.outbox | baseline.rows

    def after_step(self, home: Home) -> None:
        """Raises Violation."""
        member = home.member
        if member is None:
            return
        self.count += 1
        baseline = self._baselines.get(home.name)
        if baseline is None or baseline.restores != home.restores:
            baseline = self._baselines[home.name] = _Baseline(home.restores, home.wipes)
        self.p5_log_never_goes_back(home, member, baseline)
        assert home.replica is not None
        version = (home.journal.total_changes(), home.replica.connection.total_changes())
        if version == baseline.version:
            return
        baseline.version = version
        self.p5_place_never_goes_back(home, member, baseline)
        history = self.p3_cursor_and_rows_agree(home, member)
        self.p2_effects_are_there_once(home, history)
        self.p1_held_until_durable(home, member, baseline, history)
        if not home.busy:
            p7_no_text_vanishes(home, member, baseline)

    def p5_log_never_goes_back(self, home: Home, member: Member, baseline: _Baseline) -> None:
        log = [data for _, data, void in member.journal.log_entries() if not void]
        if log[: len(baseline.log)] != baseline.log:
            raise Violation(f"P5: the device log of {home.name} changed or went back")
        baseline.log = log
        revoked = frozenset(info.device for info in member.log.members() if info.revoked)
        if member.log.generation < baseline.generation or member.log.root_number < baseline.root_number:
            raise Violation(f"P5: the generation or the root of {home.name} went back")
        if not baseline.revoked <= revoked:
            raise Violation(f"P5: {home.name} forgot that a device was revoked")
        baseline.generation, baseline.root_number = member.log.generation, member.log.root_number
        baseline.revoked = revoked

    def p5_place_never_goes_back(self, home: Home, member: Member, baseline: _Baseline) -> None:
        place = member.replica.position()[:2]
        floor = read_floor(member)
        previous = member.replica.position().previous
        back = place < baseline.place and home.wipes == baseline.wipes
        if back and previous != baseline.previous:  # over void slots, which changed nothing, it may
            raise Violation(f"P5: {home.name} went back from {baseline.place} to {place}")
        rebuilds = home.wipes != baseline.wipes or rebuild_pending(member) or restore_pending(member)
        if floor < baseline.floor and not rebuilds and not home.abandons:
            raise Violation(f"P5: the floor of {home.name} went back from {baseline.floor} to {floor}")
        published = published_floor(member.replica)
        if published < baseline.published and not rebuilds:
            raise Violation(f"P5: the log's floor on {home.name} went back from {baseline.published}")
        baseline.place, baseline.previous, baseline.published = place, previous, published
        baseline.floor, baseline.wipes = floor, home.wipes

    def p3_cursor_and_rows_agree(self, home: Home, member: Member) -> History:
        """Returns the history at which the device stands."""
        position = member.replica.position()
        self._fold_kept(home, member, position)
        history = self.histories.get(position.previous)
        if history is None:
            raise Violation(f"P3: {home.name} stands behind an entry that nobody has seen, at {position[:2]}")
        digest = member.replica.digest()
        if digest != member.replica.recompute_digest():
            raise Violation(f"P3: the digest of {home.name} is not that of its rows")
        if history.digest is not None and digest.to_bytes() != history.digest:
            raise Violation(f"P3: {home.name} at {position[:2]} has another digest than the Core stated")
        return history

    def p2_effects_are_there_once(self, home: Home, history: History) -> None:
        assert home.replica is not None and home.member is not None, "checked before"
        restored = being_loaded(home.member)
        if restored is not None:
            of = self.histories.get(restored.previous)
            if of is None:
                raise Violation(f"P3: {home.name} restores a snapshot of a history that nobody has seen")
            difference = beyond(home.replica, of.state)
        else:
            difference = compare(home.replica, history.state)
        if difference:
            raise Violation(f"P2: {home.name} at {home.member.replica.position()[:2]}: {difference}")

    def _fold_kept(self, home: Home, member: Member, position: Position) -> None:
        base = first_position(member.replica)
        for epoch in range(base.epoch, position.epoch + 1):
            for kept in member.replica.entries(epoch, 0, 1_000_000):
                place = (epoch, kept.sequence)
                if kept.state is EntryState.VOID or not base[:2] <= place < position[:2]:
                    continue
                self.p4_signed_by_the_epochs_core(home, member, kept)
                self.histories.fold(kept.data)

    def p4_signed_by_the_epochs_core(self, home: Home, member: Member, kept: KeptEntry) -> None:
        header = parse(kept.data).header
        epoch = header.epoch
        if header.kind is Kind.SEAL:
            epoch = int.from_bytes(parse(kept.data).public, "big")
        lead = member.log.lead_of(epoch)
        if lead is None and home.restores:
            return  # its device log was put back to before that reign
        if lead is None or lead.device != header.sender:
            raise Violation(
                f"P4: {home.name} applied an entry of epoch {header.epoch} that its Core did not sign"
            )

    def p1_held_until_durable(
        self, home: Home, member: Member, baseline: _Baseline, history: History
    ) -> None:
        sent: set[bytes] = set()
        unsent: set[bytes] = set()
        for state, carried in ((EntryState.SENT, sent), (EntryState.UNSENT, unsent)):
            for kept in member.replica.kept(state):
                carried.update(self.histories.operations_in(kept.data))
                if state is EntryState.SENT and sha256(kept.data).digest() not in self._acknowledged:
                    raise Violation(
                        f"P1: {home.name} believes a mirror entry durable that no store ever called so"
                    )
        outbox = {name.digest for name in member.journal.names()}
        baseline.kept, baseline.unsent = frozenset(sent), frozenset(unsent)
        baseline.outbox = frozenset(outbox)
        baseline.rows = frozenset() if being_loaded(member) else history.operations
        missing = self._accepted.get(home.name, set()) - sent - outbox - self._below_the_base(member)
        if home.restores:  # its outbox may have been put back to before the batch that waits in the replica
            missing -= unsent
        if missing:
            raise Violation(f"P1: {home.name} let go of {len(missing)} operations that are not durable")

    def _below_the_base(self, member: Member) -> frozenset[bytes]:
        """What is durable by the snapshots on which the device's state stands, or is made anew."""
        below: frozenset[bytes] = frozenset()
        for announced in (read_base(member.replica), being_loaded(member)):
            history = self.histories.get(announced.previous) if announced else None
            below |= history.operations if history else frozenset()
        return below


_SAID_OR_REMEMBERED = """
SELECT forget_hash, text, provisional FROM chunks c WHERE EXISTS (SELECT 1 FROM occurrences WHERE chunk = c.rowid)
    OR EXISTS (SELECT 1 FROM memories WHERE chunk = c.rowid)
    OR EXISTS (SELECT 1 FROM provisional_places WHERE chunk = c.rowid AND path IS NULL)
"""
"""What only stands in documents goes with them."""


def p7_no_text_vanishes(home: Home, member: Member, baseline: _Baseline) -> None:
    """What a person could find on this device is still there, unless somebody has it forgotten. Between flows."""
    assert home.replica is not None, "checked before"
    if rebuild_pending(member) or restore_pending(member):
        return
    rows = home.replica.rows(_SAID_OR_REMEMBERED)
    texts = {row[0]: row[1] for row in rows}
    gone = baseline.texts.keys() - texts.keys()
    gone -= {row[0] for row in home.replica.rows("SELECT forget_hash FROM suppressed")}
    gone -= {row[0] for row in home.replica.rows("SELECT forget_hash FROM provisional_marks WHERE hides")}
    if gone:
        raise Violation(f"P7: {[baseline.texts[name] for name in gone]} vanished from {home.name}")
    # What only a journal held that was put back is lost with it, and shown until its name is done by another operation.
    baseline.texts = {row[0]: row[1] for row in rows if not (row[2] and home.restores)}


def being_loaded(member: Member) -> Announced | None:
    """The snapshot of which some parts are loaded and others not yet."""
    kept = member.replica.meta_get(META_RESTORE)
    if kept is None or member.replica.position() != START:
        return None
    return msgspec.convert(msgspec.msgpack.decode(kept)[0], Announced)


def beyond(database: Database, state: State) -> str:
    """What stands in the rows that is not in the state, of which they are a part; "" if nothing."""
    texts = set(database.rows("SELECT id, text FROM chunks WHERE provisional = 0"))
    if not texts <= set(state.texts.items()):
        return f"{len(texts - set(state.texts.items()))} chunks that the snapshot does not have"
    suppressed: set[bytes] = {row[0] for row in database.rows("SELECT forget_hash FROM suppressed")}
    return "" if suppressed <= state.suppressed else "texts are suppressed that are not in the snapshot"


def compare(database: Database, state: State) -> str:
    """How the rows differ from the oracle's; "" if they do not."""
    texts: dict[bytes, str] = dict(database.rows("SELECT id, text FROM chunks WHERE provisional = 0"))
    if texts != state.texts:
        more, less = sorted(texts.keys() - state.texts.keys()), sorted(state.texts.keys() - texts.keys())
        return f"{len(more)} chunks too many, {len(less)} missing"
    for rowid, chunk in database.rows("SELECT rowid, id FROM chunks WHERE provisional = 0"):
        if tuple(float16_vectors(database, rowid)) != state.chunks[chunk]:
            return "a chunk has other vectors"
    places = {
        tuple(row[:5]): tuple(row[5:])
        for row in database.rows(
            "SELECT c.id, o.session, o.message, o.part, o.agent, o.role, o.created_at, o.project, o.repository,"
            " o.source, o.device, o.model FROM occurrences o JOIN chunks c ON c.rowid = o.chunk"
        )
    }
    if places != state.occurrences:
        return _differ("places", places.keys(), state.occurrences.keys())
    kept, wanted = rows_kept(database), state.kept
    if kept.memories != wanted.memories:
        return _differ("memories", kept.memories.keys(), wanted.memories.keys())
    if kept.changes != wanted.changes:
        return _differ("changed memories", kept.changes.keys(), wanted.changes.keys())
    if kept.sources != wanted.sources:
        return _differ("sources", kept.sources.keys(), wanted.sources.keys())
    if kept.documents != wanted.documents:
        return _differ("documents", kept.documents.keys(), wanted.documents.keys())
    if kept.parts != {where: parts for where, parts in wanted.parts.items() if parts}:
        return "other texts stand in the documents"
    if kept.links != wanted.links:
        return _differ("links of projects", kept.links.keys(), wanted.links.keys())
    suppressed: set[bytes] = {row[0] for row in database.rows("SELECT forget_hash FROM suppressed")}
    if suppressed != set(state.suppressed):
        return "other texts are suppressed"
    runs, lone = state.acks()
    if set(database.rows("SELECT device, incarnation, sequence FROM acks")) != runs:
        return "other operations are acknowledged"
    if set(database.rows("SELECT device, incarnation, sequence FROM acks_sparse")) != lone:
        return "other operations are acknowledged beyond gaps"
    return compare_files(database, state)


def rows_kept(database: Database) -> Kept:
    """Memories and documents as they stand in the rows."""
    kept = Kept()
    for content, *row in database.rows(
        "SELECT c.id, m.agent, m.created_at, m.device, m.category, m.confidence, m.status, m.superseded_by, m.scope,"
        " m.changed_at FROM memories m JOIN chunks c ON c.rowid = m.chunk"
    ):
        kept.memories[content] = row
    for content, *change, scope in database.rows(
        "SELECT c.id, m.number, m.kind, m.category, m.confidence, m.status, m.superseded_by, m.agent, m.at, m.device,"
        " m.scope FROM memory_changes m JOIN chunks c ON c.rowid = m.chunk ORDER BY c.id, m.number"
    ):
        kept.changes.setdefault(content, []).append((*change, *([scope] if scope else [])))
    for name, device, root, include, exclude, at in database.rows(
        "SELECT name, device, root, include, exclude, at FROM sources"
    ):
        kept.sources[name] = (device, root, json.loads(include), json.loads(exclude), at)
    for source, path, *document in database.rows(
        "SELECT source, path, version, kind, modified_at, total, came FROM documents"
    ):
        kept.documents[source, path] = tuple(document)
    for source, path, part, content, title in database.rows(
        "SELECT d.source, d.path, p.part, c.id, p.title FROM document_parts p"
        " JOIN documents d ON d.rowid = p.document JOIN chunks c ON c.rowid = p.chunk"
    ):
        kept.parts.setdefault((source, path), {})[part] = (content, title)
    for folder, repository, other_folder, other_repository, *row in database.rows(
        "SELECT folder, repository, other_folder, other_repository, device, at FROM project_links"
    ):
        kept.links[(folder, repository), (other_folder, other_repository)] = tuple(row)
    return kept


def compare_files(database: Database, state: State) -> str:
    """How the tree of files and the condemned names differ from the oracle's; "" if they do not."""
    files = {
        row.path: (row.version, row.executable, row.modified_at, row.parts, row.gone)
        for row in filerows.files(database)
    }
    if files != state.files:
        return _differ("files", files.keys(), state.files.keys())
    if {row[0] for row in database.rows("SELECT name FROM condemned")} != set(state.condemned):
        return "other names are condemned"
    return ""


def _differ(what: str, ours: Set[object], theirs: Set[object]) -> str:
    return f"{what}: {len(ours - theirs)} too many, {len(theirs - ours)} missing, or their values differ"
