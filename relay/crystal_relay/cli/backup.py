"""`crystal-relay backup`: copy a relay's directory while the relay runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crystal_relay.cli.failures import told
from crystal_relay.cli.options import AsJson, StoreAddress
from crystal_relay.cli.output import show_json, size, tell
from crystal_relay.cli.stores import StorePlace
from crystal_relay.errors import BadRequest

if TYPE_CHECKING:
    from crystal_relay.local.backup import BackupReport


def backup(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the copy goes; a new folder.")],
    store: StoreAddress = None,
    as_json: AsJson = False,
) -> None:
    """Copy a relay's directory to a folder, also while it runs.

    The copy is of one moment and appears under its name once it is whole. One that broke off goes on when the command is
    repeated. `crystal-relay restore` makes a directory of it.
    """
    with told(as_json=as_json):
        from crystal_relay.local.backup import back_up
        from crystal_relay.server.tls import CERTIFICATE_FILE

        directory = StorePlace.of_options(store, None, False).directory
        if directory is None:
            raise BadRequest(
                "only a directory is copied by this command",
                hint="For a bucket use its provider's replication, or `rclone sync`.",
            )
        report = back_up(directory, folder.expanduser().absolute(), also=(CERTIFICATE_FILE,))
        if as_json:
            show_json(report)
        else:
            print(f"Copied {report.objects} objects, {size(report.bytes)}, to {report.target}.")
            tell_lost(report)


def tell_lost(report: "BackupReport") -> None:
    """Say that the store had lost objects before it was copied."""
    if report.lost:
        tell(
            f"{report.lost} of its objects are left out: their files are missing. Devices that have what was in them store it "
            "again. Check the disk, or the way that the folder came here."
        )
