"""``crystal verify``: compare the memory with its digest, row by row, and with --deep everything on the relay."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from crystal_core.errors import VaultDamaged
from crystal_mirror.repair.inspection import Fault
from crystal_node.base.errors import MemoryDiffers, RelayLacks
from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted, one_line, size
from crystal_node.device.device import opened
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.sync.maintenance.verification import Verification, verify

if TYPE_CHECKING:
    from crystal_node.sync.maintenance.inspection import DeepVerification

Deep = Annotated[
    bool,
    typer.Option(
        "--deep",
        help="Also check the database's file, and read all on the relay: log, newest snapshot, every part of every file.",
    ),
]


def run(deep: Deep = False, as_json: Json = False) -> None:
    """Compare every row of the memory with its digest.

    The state digest is computed again from every row, and compared with the stored one and with what the Core stated last.
    Two devices that are caught up show the same digest: then they hold the same memory, to the last row.

    Example:

        crystal verify
        crystal verify --deep
    """
    with opened(resolve()) as device:
        if deep:
            # It loads the relay's client, which takes longer than a plain verification.
            from crystal_node.sync.maintenance.inspection import verify_deep

            found = asyncio.run(verify_deep(device, None if as_json else note))
            if as_json:
                emit(deep_document(found))
            else:
                say_deep(found)
            fail_if_left(found)
            return
        result = verify(device)
    if as_json:
        emit(_document(result))
    else:
        _say(result)
    _fail_if_wrong(result)
    if not as_json:
        _say_agrees(result)


def deep_document(found: "DeepVerification") -> dict[str, object]:
    """The JSON document of a deep verification, also for `crystal repair`."""
    relay = found.relay
    return _document(found.memory) | {
        "ok": found.ok,
        "faults": list(found.faults),
        "relay": {
            "slots": relay.slots,
            "snapshot": {"epoch": relay.snapshot[0], "seq": relay.snapshot[1]} if relay.snapshot else None,
            "snapshot_parts": relay.snapshot_parts,
            "file_parts": relay.file_parts,
            "bytes": relay.bytes,
            "problems": [
                {"fault": problem.fault.value, "what": problem.what, "path": problem.path or None}
                for problem in relay.problems
            ],
        },
    }


def say_deep(found: "DeepVerification") -> None:
    """Print a deep verification, also for `crystal repair`."""
    relay = found.relay
    _say(found.memory)
    snapshot = (
        f"snapshot of epoch {relay.snapshot[0]}, slot {relay.snapshot[1]:,} in {counted(relay.snapshot_parts, 'part')}"
        if relay.snapshot
        else "no snapshot"
    )
    say(
        f"relay   {relay.slots:,} slots, {snapshot}, {counted(relay.file_parts, 'part')} of files; {size(relay.bytes)} read"
    )
    for fault in found.faults:
        say(f"! the database: {one_line(fault, 300)}")
    for problem in relay.problems:
        say(f"! {problem.fault.value}: {one_line(problem.what, 300)}")
    if found.ok:
        _say_agrees(found.memory)
        say("The relay has everything that this machine counts on.")


def fail_if_left(found: "DeepVerification") -> None:
    """Raise VaultDamaged, MemoryDiffers or RelayLacks for what is wrong, the nearest first."""
    repair = "`crystal repair` repairs what can be repaired."
    if found.faults:
        raise VaultDamaged(f"the database is damaged: {found.faults[0]}", hint=repair)
    _fail_if_wrong(found.memory)
    own = [problem for problem in found.relay.problems if problem.fault is Fault.OWN_LOG]
    if own:
        raise VaultDamaged(f"damaged: {own[0].what}", hint=repair)
    if found.relay.problems:
        raise RelayLacks(f"the relay lacks or has changed: {found.relay.problems[0].what}")


def _document(result: Verification) -> dict[str, object]:
    return {
        "digest": result.computed,
        "kept": result.kept,
        "mirror": result.stated,
        "ok": result.ok,
        "epoch": result.epoch,
        "seq": result.sequence,
        "tables": dict(result.tables),
        "provisional": result.provisional,
        "seconds": round(result.seconds, 3),
    }


def _say(result: Verification) -> None:
    say(f"digest  {result.computed}")
    say(f"rows    {', '.join(f'{count:,} {name}' for name, count in result.tables)}")
    say(f"mirror  epoch {result.epoch}, {result.sequence:,} slots applied")


def _fail_if_wrong(result: Verification) -> None:
    if result.computed != result.kept:
        raise VaultDamaged("the rows are not what their digest says: the database was changed or damaged")
    if result.stated is not None and result.stated != result.computed:
        raise MemoryDiffers("the memory differs from what the Core stated in what the Core stated last")


def _say_agrees(result: Verification) -> None:
    said = "and what the Core stated" if result.stated else "; the Core has stated nothing yet"
    say(f"The rows agree with the kept digest {said}.".replace(" ;", ";"))
