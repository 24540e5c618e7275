"""``crystal verify``: compares the memory with what its log says, row by row."""

from crystal_node.cli.options import Debug, Json
from crystal_node.cli.output import emit, say


def run(as_json: Json = False, debug: Debug = False) -> None:
    """Compute the state digest anew from every row, and compare it with the kept one and with the mirror's last entry.

    Two devices that are caught up show the same digest: then they hold the same memory, to the last row.

    Example:

        crystal verify
    """
    from crystal_core.errors import VaultDamaged
    from crystal_node.device import opened
    from crystal_node.errors import MemoryDiffers
    from crystal_node.health.verifying import verify
    from crystal_node.settings import resolve

    with opened(resolve()) as device:
        result = verify(device)
    if as_json:
        emit(
            {
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
        )
    else:
        say(f"digest  {result.computed}")
        say(f"rows    {', '.join(f'{count:,} {name}' for name, count in result.tables)}")
        say(f"mirror  epoch {result.epoch}, {result.sequence:,} entries applied")
    if result.computed != result.kept:
        raise VaultDamaged("the rows are not what their digest says: the database was changed or damaged")
    if result.stated is not None and result.stated != result.computed:
        raise MemoryDiffers("the memory differs from what the Core stated in the mirror's last entry")
    if not as_json:
        said = "and what the Core stated" if result.stated else "; the mirror has no entry yet"
        say(f"The rows agree with the kept digest {said}.".replace(" ;", ";"))
