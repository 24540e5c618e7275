"""``crystal devices``: who is in the vault."""

from crystal_node.cli.options import Debug, Json
from crystal_node.cli.output import emit


def run(as_json: Json = False, debug: Debug = False) -> None:
    """List the vault's devices, as the device log has them here.

    Example:

        crystal devices --json
    """
    from crystal_mirror.status import devices
    from crystal_node.device import opened
    from crystal_node.settings import resolve
    from crystal_node.wording import iso, one_line

    with opened(resolve()) as device:
        entries = devices(device.member)
    rows = [
        {
            "id": entry.info.device.hex(),
            "name": entry.details.name if entry.details else None,
            "system": entry.details.system if entry.details else None,
            "role": "core" if entry.leads else "node",
            "this": entry.is_this,
            "joined_by": "root" if entry.info.by_root else "core",
            "added_at": iso(entry.added.at) if entry.added else None,
        }
        for entry in entries
    ]
    if as_json:
        emit({"devices": rows})
        return
    from rich.table import Table

    from crystal_node.cli.terminal import console

    table = Table(box=None, pad_edge=False)
    for title in ("Device", "Name", "Role", "System", "Added", "Power"):
        table.add_column(title)
    for row in rows:
        table.add_row(
            str(row["id"])[:8] + (" (this)" if row["this"] else ""),
            one_line(str(row["name"] or "?"), 40),
            str(row["role"]),
            one_line(str(row["system"] or "?"), 30),
            str(row["added_at"] or "?")[:10],
            "full: it holds or held the code" if row["joined_by"] == "root" else "its own entries",
        )
    console().print(table)
