"""``crystal prune``: show or delete what the relay no longer needs to keep."""

import asyncio
from typing import Annotated

import typer

from crystal_mirror.membership.status import device_name
from crystal_mirror.retention.pruning import Rewritten
from crystal_mirror.retention.status import RetentionStatus, retention_status
from crystal_node.base.clock import now_ms
from crystal_node.base.settings import resolve
from crystal_node.base.wording import ago, counted, iso, one_line, size
from crystal_node.device.device import Device, opened
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import confirm
from crystal_node.sync.maintenance.prune import prune
from crystal_node.sync.members.rights import check_is_core

Now = Annotated[bool, typer.Option("--now", help="Delete it now, without the waiting times.")]
Rewrite = Annotated[
    bool,
    typer.Option(
        "--rewrite",
        help="Seal again with the current keys what the relay holds under older ones, and delete that. Implies --now.",
    ),
]

_NOW = """\
The log is deleted up to the newest snapshot, and with it everything else that nobody needs. A machine that is behind reads the
snapshot in place of what it has missed, which may take it longer; nothing that any machine has recorded is lost.
"""
_REWRITE = """\
Everything on the relay that is sealed with older keys is sealed again with the current ones: every file and the whole memory go
over the line once, both ways, if they are still under older keys.
"""


def run(now: Now = False, rewrite: Rewrite = False, yes: Yes = False, as_json: Json = False) -> None:
    """Show or delete what the relay no longer needs to keep.

    Without options it shows what the relay keeps, why, and what goes next; the Core deletes that by itself in time. A
    snapshot replaces the log before it. The log is kept from the last slot that each machine has read, for 30 days at most;
    what was forgotten is gone from it after 7 days in any case. See docs/retention.md.

    Example:

        crystal prune
        crystal prune --now
    """
    with opened(resolve()) as device:
        check_is_core(device, "prunes")
        if not (now or rewrite):
            _show(device, retention_status(device.member, now_ms()), None, as_json=as_json)
            return
        if not yes:
            about = _NOW + (_REWRITE if rewrite else "")
            confirm("\nType prune to go on: ", expect="prune", about=about, as_json=as_json)
        done = asyncio.run(prune(device, None if as_json else note, rewrite=rewrite))
        _show(device, done.after, done.rewritten, as_json=as_json)


def _show(device: Device, found: RetentionStatus, rewritten: Rewritten | None, *, as_json: bool) -> None:
    if as_json:
        emit(_document(device, found, rewritten))
        return

    if rewritten is not None:
        say(
            f"Sealed again: {counted(rewritten.parts, 'part')} of {counted(rewritten.files, 'file')}, and the memory's "
            "snapshot."
        )
        for path, why in sorted(rewritten.lacking.items()):
            say(f"! {_line(path)} stays as it is: {why}")
    say(f"log        kept from {_place(found.floor)} to {_place(found.position)}, {size(found.kept_bytes)}")
    if found.floor_next is not None:
        say(f"           goes up to {_place(found.floor_next)} next")
    _say_readers(device, found)
    for kept in found.snapshots:
        say(f"snapshot   of {_place(kept.place)}, {counted(kept.blobs, 'blob')}, {_since(kept.since)}")
    if found.announced is not None:
        say(f"snapshot   of {_place(found.announced)}, new: the Core has not looked at it yet")
    elif not found.snapshots:
        say("snapshot   none: the whole log is kept")
    if found.snapshot_lost:
        say("! The relay does not have all of the newest snapshot; the Core makes another one.")
    if found.due is not None:
        say(f"           the next one is due: {found.due}")
    say(f"talk       {found.expired} of {counted(found.acked, 'stream')} deleted as far as it was taken in")
    if found.condemning or found.lone:
        lone = f", {_since(found.lone_since)}" if found.lone else ""
        say(f"blobs      {found.condemning} being deleted, {found.lone} that nothing refers to{lone}")
    for each in found.forgets:
        if not each.assumed:
            say(
                f"forgotten  up to {_place(each.place)}, {_since(each.since)}; gone from the relay 7 days later at the latest"
            )


def _say_readers(device: Device, found: RetentionStatus) -> None:
    for reader in found.readers:
        if reader.holds:
            name = _name(device, reader.device)
            say(f"           kept for {name}, which is at {_place(reader.place)}, {_since(reader.since)}")
        elif reader.passed or not reader.has_vote:
            name = _name(device, reader.device)
            say(
                f"           {name} is at {_place(reader.place)}, {_since(reader.since)}: it will read a snapshot"
            )


def _document(device: Device, found: RetentionStatus, rewritten: Rewritten | None) -> dict[str, object]:
    def place(at: tuple[int, int] | None) -> dict[str, int] | None:
        return {"epoch": at[0], "seq": at[1]} if at is not None else None

    document: dict[str, object] = {
        "log": {
            "floor": place(found.floor),
            "next": place(found.floor_next),
            "end": place(found.position),
            "bytes": found.kept_bytes,
        },
        "readers": [
            {
                "device": reader.device.hex(),
                "at": place(reader.place),
                "since": iso(reader.since),
                "told_at": iso(reader.told_at),
                "has_vote": reader.has_vote,
                "passed": reader.passed,
                "holds": reader.holds,
            }
            for reader in found.readers
        ],
        "snapshots": [
            {
                "of": place(kept.place),
                "announced": place(kept.slot),
                "since": iso(kept.since),
                "blobs": kept.blobs,
            }
            for kept in found.snapshots
        ],
        "snapshot_new": place(found.announced),
        "snapshot_bytes": found.snapshot_bytes,
        "snapshot_lost": found.snapshot_lost,
        "snapshot_due": found.due,
        "streams": {"acked": found.acked, "expired": found.expired},
        "blobs": {"condemning": found.condemning, "lone": found.lone, "lone_since": iso(found.lone_since)},
        "forgets": [
            {"up_to": place(each.place), "since": iso(each.since), "assumed": each.assumed}
            for each in found.forgets
        ],
        "looked_at": iso(found.looked_at),
    }
    if rewritten is not None:
        document["rewritten"] = {
            "files": rewritten.files,
            "parts": rewritten.parts,
            "lacking": rewritten.lacking,
        }
    return document


def _name(device: Device, who: bytes) -> str:
    return f"{one_line(device_name(device.member, who) or '?', 40)} ({who.hex()[:8]})"


def _place(at: tuple[int, int]) -> str:
    return f"epoch {at[0]}, slot {at[1]:,}"


def _line(text: str) -> str:
    return one_line(text, 200)


def _since(moment: int) -> str:
    return f"for {ago(max(now_ms() - moment, 0) / 1000)}"
