"""Plausible mistakes with snapshots, retention, moving the Core and files, to be put back on purpose. Each undoes one rule of
the real code; ``FOUND_BY`` names the plot that shows it, and shows nothing without it.
"""

# pyright: reportPrivateUsage=false
# Mistakes are made in the middle of things.

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from typing import Any
from unittest.mock import patch

from crystal_core.replica import ReplicaReader, ReplicaTransaction
from crystal_crypto import entry
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.entries import control_state
from crystal_mirror.entries.control_state import newest_snapshot
from crystal_mirror.files import transfers as filemoves
from crystal_mirror.files.shared import FilesRound
from crystal_mirror.handover.terms import holding_of
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Condemn, Flow, Has
from crystal_mirror.retention import gc as retention
from crystal_mirror.retention.gc import RetentionState
from crystal_mirror.snapshots import blobs, restore
from crystal_mirror.snapshots import creation as snapshots
from crystal_mirror.snapshots.blobs import BlobRef, put_blob
from tests.sim import file_mistakes
from tests.sim import mixed_plots as plots

Mistake = Callable[[], AbstractContextManager[Any]]


def the_cursor_runs_ahead_of_a_restore() -> AbstractContextManager[Any]:
    """The position is the snapshot's before its rows are there."""
    honest = restore.start_restore

    def start(transaction: Any, source: restore.RestoreSource) -> None:
        honest(transaction, source)
        transaction.set_position(source.announced.position)

    return patch.object(restore, "start_restore", start)


def a_floor_rises_over_readers() -> AbstractContextManager[Any]:
    """Where the readers stand is not asked."""

    def none(_member: Member, state: RetentionState, _now_ms: int) -> None:
        state.readers = {}

    return patch.object(retention, "_note_readers", none)


def deleted_before_the_floor_is_published() -> AbstractContextManager[Any]:
    """The relay is asked for what the next floor would allow."""
    honest = retention._ask

    def ask(member: Member, state: RetentionState) -> Flow[None]:
        newest = newest_snapshot(member.replica)
        if newest is not None and newest.sequence:
            through = member.keys.mirror(newest.epoch, newest.sequence - 1)
            yield Condemn(prefix=member.keys.epoch_prefix(newest.epoch), through=through)
        yield from honest(member, state)

    return patch.object(retention, "_ask", ask)


def names_are_deleted_before_they_are_condemned() -> AbstractContextManager[Any]:
    """The relay is asked at once; the log says so later."""
    honest = retention._ask

    def ask(member: Member, state: RetentionState) -> Flow[None]:
        doomed = {name for kept in state.snapshots[:-1] for name in kept.names}
        needed = set(state.snapshots[-1].names) if state.snapshots else set[bytes]()
        yield Condemn(keys=tuple(sorted(map(member.keys.blob, doomed - needed))))
        yield from honest(member, state)

    return patch.object(retention, "_ask", ask)


def a_condemned_name_is_used_again() -> AbstractContextManager[Any]:
    """That a name was condemned is noted, and not asked."""

    def never(_self: ReplicaReader, _name: bytes) -> bool:
        return False

    return patch.object(ReplicaReader, "is_condemned", never)


@contextmanager
def files_use_condemned_names() -> Generator[None]:
    """Where a file's parts are named nobody looks what was condemned."""

    def turn(_member: Member, _content: bytes, first: int = 0) -> int:
        return first

    with patch.object(filemoves, "usable_turn", turn):
        yield


def announced_before_it_was_read_back() -> AbstractContextManager[Any]:
    """What was put is believed to be there."""

    def put(member: Member, content: bytes, **_named: Any) -> Flow[tuple[BlobRef, bytes]]:
        ref = yield from put_blob(member, content)
        return ref, content

    return patch.object(snapshots, "put_verified", put)


@contextmanager
def a_snapshot_of_what_is_not_published() -> Generator[None]:
    """Rows that wait in an unsent batch are in it, and whether their batch ever stands in the log is not asked."""

    def stands(_member: Member, _epoch: int, _sequence: int, _previous: bytes) -> bool:
        return True

    def none(_self: object, _state: object) -> list[Any]:
        return []

    honest = snapshots.make_snapshot

    def make(member: Member, **named: Any) -> Flow[Any]:
        with patch.object(type(member.replica), "kept", none):
            flow = honest(member, **named)
            request = next(flow, None)
        while request is not None:
            reply = yield request
            try:
                request = flow.send(reply)
            except StopIteration as stop:
                return stop.value
        return None

    with (
        patch.object(snapshots, "_stands", stands),
        patch("tests.sim.mixed_script.make_snapshot", make),
    ):
        yield


@contextmanager
def a_restore_is_not_checked() -> Generator[None]:
    """What the parts hold is taken for what the announcement states."""
    honest = restore._finish

    class Stated:
        def __init__(self, digest: bytes) -> None:
            self._digest = digest

        def to_bytes(self) -> bytes:
            return self._digest

    def finish(member: Member, state: Any, *rest: Any) -> bool:
        def stated(_self: ReplicaTransaction) -> Stated:
            return Stated(state.announced.digest)

        with patch.object(ReplicaTransaction, "digest", stated):
            return honest(member, state, *rest)

    with patch.object(restore, "_finish", finish):
        yield


@contextmanager
def entries_above_the_floor_are_dropped() -> Generator[None]:
    """With a floor everything goes that stands before the newest entry."""
    honest = ReplicaTransaction.drop_entries_before

    def drop(self: ReplicaTransaction, epoch: int, sequence: int) -> int:
        position = self.position()
        return honest(self, position.epoch, max(0, position.sequence - 1))

    with patch.object(ReplicaTransaction, "drop_entries_before", drop):
        yield


def conversations_expire_unheard() -> AbstractContextManager[Any]:
    """What lies in a stream goes, whether or not the log has it."""

    def expire(member: Member, _state: RetentionState, _now_ms: int, _force: bool) -> Flow[None]:
        for device, incarnation, _ in member.replica.acks():
            prefix = member.keys.stream_prefix(device, incarnation)
            yield Condemn(prefix=prefix, through=member.keys.beyond_stream(device, incarnation))

    return patch.object(retention, "_expire_conversations", expire)


@contextmanager
def a_forget_waits_for_the_log_to_grow() -> Generator[None]:
    """Snapshots and floors are made when they are worth it, and a forget makes none."""

    def none(*_values: object) -> tuple[()]:
        return ()

    with patch.object(retention, "pending_forgets", none), patch.object(retention, "note_forgets", none):
        yield


def conversations_are_kept() -> AbstractContextManager[Any]:
    """What the log has stays in the streams as well."""

    def nothing(_member: Member, _state: RetentionState, _now_ms: int, _force: bool) -> Flow[None]:
        yield from ()

    return patch.object(retention, "_expire_conversations", nothing)


def older_snapshots_are_kept() -> AbstractContextManager[Any]:
    """What a newer one has superseded is not let go of."""

    def none(*_values: object) -> list[bytes]:
        return []

    return patch.object(retention, "_superseded", none)


def the_newest_snapshot_is_taken_for_old() -> AbstractContextManager[Any]:
    """Its parts are condemned with those of the one before."""

    def superseded(member: Member, state: RetentionState, *_rest: Any) -> list[bytes]:
        names = {name for kept in state.snapshots for name in kept.names}
        return sorted(name for name in names if not member.replica.is_condemned(name))

    return patch.object(retention, "_superseded", superseded)


def blobs_of_files_count_for_nothing() -> AbstractContextManager[Any]:
    """What the living files are made of is swept with what nothing refers to."""

    def of_use(_member: Member) -> set[bytes]:
        return set()

    return patch.object(retention, "blobs_in_use", of_use)


def a_floor_binds_without_a_snapshot() -> AbstractContextManager[Any]:
    """The base stays what it was, though what is kept begins at the floor."""

    def set_base(_transaction: object, _base: object) -> None:
        return None

    return patch.object(control_state, "set_base", set_base)


def nothing_is_offered_again_after_a_restore() -> AbstractContextManager[Any]:
    """Who goes over to a snapshot drops what only its own log had."""

    def forgotten(*_values: Any, **_named: Any) -> None:
        return None

    return patch.object(restore, "reoffer", forgotten)


def a_core_that_drained_waits_for_ever() -> AbstractContextManager[Any]:
    """It publishes nothing until the one that asked has the lead."""

    def holds(member: Member, _now_ms: int) -> Flow[bool]:
        yield from ()
        return holding_of(member) is not None

    return patch("crystal_mirror.round.holds", holds)


def bodies_are_not_encrypted() -> AbstractContextManager[Any]:
    """The cipher is the identity."""

    def encrypt(_key: bytes, _nonce: bytes, _clear: bytes, parts: list[bytes], into: memoryview) -> bytes:
        whole = b"".join(parts)
        into[: len(whole)] = whole
        return bytes(16)

    return patch.object(entry, "_encrypt", encrypt)


def blobs_are_named_by_what_they_hold() -> AbstractContextManager[Any]:
    """Without a key: who guesses a file sees that it is there."""

    def name(_self: VaultSecret, content_hash: bytes, turn: int = 0) -> bytes:
        return content_hash if not turn else sha256(content_hash + bytes([turn])).digest()

    return patch.object(VaultSecret, "blob_name", name)


def blobs_keep_their_names_through_a_revocation() -> AbstractContextManager[Any]:
    """The vault's secret, which a revoked device keeps, names what is stored after it was out."""

    def named(_self: Member, _content: bytes, turn: int) -> int:
        return turn

    return patch.object(Member, "named", named)


def blobs_have_the_names_of_the_first_generation() -> AbstractContextManager[Any]:
    """Names depend on a generation's key, and on the same one for ever."""

    def named(self: Member, content: bytes, turn: int) -> bytes:
        key = self.key_for(1)
        assert key is not None, "every key is here"
        return key.blob_name(self.vault, content, turn)

    return patch.object(Member, "named", named)


@contextmanager
def the_relay_is_asked_for_the_old_name_first() -> Generator[None]:
    """Where a content stood before, nothing is to be stored: so it is asked for under that name, too."""
    honest = blobs.lacking

    def asks(member: Member, refs: Sequence[BlobRef]) -> Flow[list[BlobRef]]:
        yield from honest(member, [BlobRef(ref.content, ref.length) for ref in refs])
        return (yield from honest(member, refs))

    def everything(_this: FilesRound, _path: str, refs: Sequence[BlobRef]) -> set[BlobRef]:
        return set(refs)

    with patch.object(filemoves, "lacking", asks), patch.object(filemoves, "_probably_there", everything):
        yield


def what_was_begun_before_a_revocation_is_finished_as_it_was_begun() -> AbstractContextManager[Any]:
    """Keys are renewed while a part is on its way: it keeps its name."""

    def put(member: Member, content: bytes, *_turn: int, **named: Any) -> Flow[BlobRef]:
        digest = sha256(content).digest()
        ref = BlobRef(digest, len(content), member.named(digest, 0))
        there = yield Has((blobs.blob_key(member, ref),))
        if not there[0]:
            yield from blobs.put_under(member, ref, content, **named)
        return ref

    return patch.object(blobs, "put_blob", put)


FOUND: tuple[tuple[Mistake, Callable[[], None]], ...] = (
    (the_cursor_runs_ahead_of_a_restore, plots.scripts("begun late")),
    (a_floor_rises_over_readers, plots.a_reader_is_behind),
    (deleted_before_the_floor_is_published, plots.scripts("let go")),
    (names_are_deleted_before_they_are_condemned, plots.scripts("let go")),
    (a_condemned_name_is_used_again, plots.a_part_comes_back),
    (files_use_condemned_names, plots.what_was_condemned_comes_back),
    (announced_before_it_was_read_back, plots.a_relay_swallows_the_parts),
    (a_snapshot_of_what_is_not_published, plots.a_batch_waits_while_a_snapshot_is_made),
    (a_restore_is_not_checked, plots.the_core_leaves_rows_out),
    (entries_above_the_floor_are_dropped, plots.scripts("let go", "begun late")),
    (conversations_expire_unheard, plots.scripts("let go", "left behind")),
    (the_newest_snapshot_is_taken_for_old, plots.scripts("let go")),
    (blobs_of_files_count_for_nothing, plots.what_was_condemned_comes_back),
    (a_floor_binds_without_a_snapshot, plots.scripts("let go", "begun late")),
    (nothing_is_offered_again_after_a_restore, plots.a_core_is_overtaken),
    (a_core_that_drained_waits_for_ever, plots.who_asked_for_the_lead_goes_away),
    (file_mistakes.the_second_version_of_a_file_is_dropped, plots.scripts("filed")),
    (file_mistakes.a_deletion_beats_an_edit, plots.scripts("filed")),
    (file_mistakes.a_file_is_overwritten_though_it_changed, plots.a_person_types_on),
    (file_mistakes.the_trash_is_skipped, plots.scripts("filed")),
    (file_mistakes.what_is_not_there_is_removed, plots.scripts("filed")),
    (file_mistakes.an_absent_file_is_a_deletion, plots.scripts("filed")),
    (file_mistakes.files_are_offered_without_their_parts, plots.scripts("filed")),
    (a_forget_waits_for_the_log_to_grow, plots.a_text_is_forgotten),
    (conversations_are_kept, plots.a_text_is_forgotten),
    (older_snapshots_are_kept, plots.a_text_is_forgotten),
    (bodies_are_not_encrypted, plots.scripts("made")),
    (blobs_are_named_by_what_they_hold, plots.scripts("filed")),
    (blobs_keep_their_names_through_a_revocation, plots.files_go_on_after_a_revocation),
    (blobs_have_the_names_of_the_first_generation, plots.files_go_on_after_a_revocation),
    (the_relay_is_asked_for_the_old_name_first, plots.files_go_on_after_a_revocation),
    (what_was_begun_before_a_revocation_is_finished_as_it_was_begun, plots.keys_are_renewed_under_way),
)
MISTAKES: dict[str, Mistake] = {mistake.__name__.replace("_", " "): mistake for mistake, _ in FOUND}
FOUND_BY: dict[str, Callable[[], None]] = {
    mistake.__name__.replace("_", " "): plot for mistake, plot in FOUND
}
