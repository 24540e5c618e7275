"""What was wrong before, and is wrong again without its mending: with damage at rest, lost databases, power cuts, 429.

Each undoes one rule of the real code; ``FOUND_BY`` names the plot that shows it, and shows nothing without it.
"""

# pyright: reportPrivateUsage=false
# Mistakes are made in the middle of things.

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from crystal_mirror import round as rounds
from crystal_mirror.membership import founding
from crystal_mirror.membership.member import Member
from crystal_mirror.repair import audit
from crystal_mirror.requests import (
    Flow,
    Get,
    GetBlob,
    GetBlobs,
    GetMany,
    GetPart,
    Has,
    List,
    Listing,
    PutBlob,
    PutBlobs,
    PutNew,
    Request,
    StoreFailure,
)
from crystal_node.device.journal import SqliteJournal
from crystal_relay.errors import StoreUnavailable, TooManyRequests
from tests.sim import damage_plots as plots
from tests.sim import device
from tests.sim.mixed_mistakes import Mistake
from tests.sim.store import SimStore
from tests.support.constant import always


def _nothing(result: object) -> Callable[..., Flow[Any]]:
    def flow(*_values: object, **_named: object) -> Flow[Any]:
        yield from ()
        return result

    return flow


def only_the_end_of_the_device_log_is_read() -> AbstractContextManager[Any]:
    """Who has read a slot of it does not read it again."""
    return patch.object(audit, "compare_log", _nothing([]))


@contextmanager
def who_joins_takes_the_log_as_it_is_shown() -> Generator[None]:
    """What stands behind a damaged slot is void, and that is that."""
    with (
        patch.object(founding, "check_shown", always(None)),
        patch.object(founding, "_ahead", _nothing(None)),
    ):
        yield


def a_snapshot_is_not_read_again() -> AbstractContextManager[Any]:
    """Once it is announced it is there."""
    return patch.object(audit, "_audit_snapshot", _nothing(None))


@contextmanager
def a_slot_of_the_mirror_is_not_read_again() -> Generator[None]:
    """Once it was applied it is there."""
    with (
        patch.object(audit, "_audit_mirror", _nothing(0)),
        patch.object(rounds, "_unmended_damage", _nothing(None)),
    ):
        yield


def only_the_core_audits() -> AbstractContextManager[Any]:
    """What a Node is shown it keeps to itself."""
    honest = audit.audit

    def audited(member: Member, now_ms: int, *, full: bool) -> Flow[int]:
        if not member.is_core:
            return 0
        return (yield from honest(member, now_ms, full=full))

    return patch.object(rounds, "audit", audited)


def damage_is_named_and_left_there() -> AbstractContextManager[Any]:
    """Nobody writes over what stands in the device log."""
    return patch.object(audit, "replace_damaged", _nothing(0))


def what_rows_alone_tell_of_stays_here() -> AbstractContextManager[Any]:
    """It is found on this device, and told as pending."""
    return patch.object(Member, "_offer_again", always(None))


@contextmanager
def the_outbox_does_not_wait_for_the_disk() -> Generator[None]:
    """A commit of the journal is said to be done before it is."""
    honest = device.Home._journal

    def journal(home: device.Home) -> SqliteJournal:
        made = honest(home)
        made.connection.execute("PRAGMA synchronous = NORMAL")
        return made

    with patch.object(device.Home, "_journal", journal):
        yield


def rows_are_made_once() -> AbstractContextManager[Any]:
    """What the outbox holds and the rows do not is not looked for at the start."""
    return patch.object(Member, "mend", always(None))


def a_new_process_heeds_nobody() -> AbstractContextManager[Any]:
    """Who was fully checked lately has heard of everything."""
    return patch.object(rounds, "poll_cursors", _nothing(None))


def a_conflict_counts_as_stored() -> AbstractContextManager[Any]:
    """409 tells that something is written there."""
    honest = SimStore.perform

    def perform(store: SimStore, name: str, request: Request) -> Any:
        try:
            return honest(store, name, request)
        except StoreFailure as failure:
            if type(failure.__cause__) is StoreUnavailable and isinstance(
                request, PutNew | PutBlob | PutBlobs
            ):
                return [True for _ in request.blobs] if isinstance(request, PutBlobs) else True
            raise

    return patch.object(SimStore, "perform", perform)


def who_is_asked_to_wait_sees_nothing() -> AbstractContextManager[Any]:
    """What is not shown is not there."""
    honest = SimStore.perform

    def perform(store: SimStore, name: str, request: Request) -> Any:
        try:
            return honest(store, name, request)
        except StoreFailure as failure:
            if not isinstance(failure.__cause__, TooManyRequests):
                raise
            match request:
                case Get() | GetBlob() | GetPart():
                    return None
                case GetMany(keys) | GetBlobs(keys, _) | Has(keys):
                    return [None for _ in keys]
                case List():
                    return Listing((), False)
                case _:
                    raise

    return patch.object(SimStore, "perform", perform)


def a_branch_is_never_left() -> AbstractContextManager[Any]:
    """Who pairs again goes on from the log that it has."""
    return patch.object(SqliteJournal, "drop_log", always(None))


FOUND: tuple[tuple[Mistake, Callable[[], None]], ...] = (
    (only_the_end_of_the_device_log_is_read, plots.a_byte_of_the_device_log_rots),
    (who_joins_takes_the_log_as_it_is_shown, plots.a_byte_of_the_device_log_rots),
    (damage_is_named_and_left_there, plots.a_byte_of_the_device_log_rots),
    (a_snapshot_is_not_read_again, plots.a_part_of_a_snapshot_rots),
    (a_slot_of_the_mirror_is_not_read_again, plots.a_slot_of_the_mirror_rots),
    (only_the_core_audits, plots.only_the_laptop_is_shown_damage),
    (what_rows_alone_tell_of_stays_here, plots.the_journal_is_lost),
    (the_outbox_does_not_wait_for_the_disk, plots.the_power_is_cut),
    (rows_are_made_once, plots.the_power_is_cut),
    (a_new_process_heeds_nobody, plots.devices_sync_now_and_then),
    (a_conflict_counts_as_stored, plots.a_relay_asks_to_wait),
    (who_is_asked_to_wait_sees_nothing, plots.a_relay_asks_to_wait),
    (a_branch_is_never_left, plots.a_device_is_alone_on_a_branch),
)
MISTAKES: dict[str, Mistake] = {mistake.__name__.replace("_", " "): mistake for mistake, _ in FOUND}
FOUND_BY: dict[str, Callable[[], None]] = {
    mistake.__name__.replace("_", " "): plot for mistake, plot in FOUND
}
