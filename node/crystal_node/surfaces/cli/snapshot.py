"""``crystal snapshot``: make a snapshot of the memory on the relay now."""

import asyncio

from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted, size
from crystal_node.device.device import opened
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.sync.maintenance.snapshot import announce_snapshot


def run(as_json: Json = False) -> None:
    """Make a snapshot of the memory on the relay now.

    A new machine reads it in place of the whole log. The Core makes snapshots by itself when due. It is read back whole and
    compared before it counts. What is on the relay already is not sent again.

    Example:

        crystal snapshot
    """
    with opened(resolve()) as device:
        made = asyncio.run(announce_snapshot(device, None if as_json else note))
    if as_json:
        emit(
            {
                "epoch": made.place[0],
                "seq": made.place[1],
                "announced": {"epoch": made.slot[0], "seq": made.slot[1]},
                "digest": made.digest.hex(),
                "parts": made.parts,
                "bytes": made.size,
                "bytes_up": made.sent,
                "seconds": round(made.seconds, 3),
            }
        )
        return
    say(
        f"Snapshot of epoch {made.place[0]}, slot {made.place[1]:,}: {counted(made.parts, 'part')}, {size(made.size)}; "
        f"{size(made.sent)} sent in {made.seconds:.1f} s."
    )
