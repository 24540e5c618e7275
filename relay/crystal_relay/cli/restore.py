"""`crystal-relay restore`: make a relay's directory from a copy."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from crystal_relay.cli.backup import tell_lost
from crystal_relay.cli.failures import told
from crystal_relay.cli.options import AsJson, StoreAddress
from crystal_relay.cli.output import show_json, size, tell
from crystal_relay.cli.stores import StorePlace
from crystal_relay.errors import BadRequest


def restore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The copy that `backup` has made.")],
    keep_tokens: Annotated[
        bool, typer.Option("--keep-tokens", help="Bring enrolment tokens back, with the uses they had then.")
    ] = False,
    store: StoreAddress = None,
    as_json: AsJson = False,
) -> None:
    """Make a relay's directory from a copy of `backup`.

    The directory does not exist yet, or is empty; the copy stays. Enrolment tokens are left out, since they may have been used
    or revoked since. The command says what else may come back.
    """
    with told(as_json=as_json):
        from crystal_relay.local.backup import back_up
        from crystal_relay.server.enrollment import PREFIX, USES_PREFIX
        from crystal_relay.server.tls import CERTIFICATE_FILE

        directory = StorePlace.of_options(store, None, False).directory
        if directory is None:
            raise BadRequest(
                "only a directory is restored by this command",
                hint="Copy a bucket's objects back with its provider's means, or `rclone sync`.",
            )
        without = () if keep_tokens else (PREFIX, USES_PREFIX)
        source = folder.expanduser().absolute()
        report = back_up(source, directory, also=(CERTIFICATE_FILE,), without=without)
        if as_json:
            show_json(report)
            return
        made = datetime.fromtimestamp((source / "objects.db").stat().st_mtime, UTC)
        print(f"Restored {report.objects} objects, {size(report.bytes)}, to {report.target}.")
        tell_lost(report)
        tell(
            f"The copy is of {made:%Y-%m-%d %H:%M} UTC. Since then:\n"
            "- what devices have stored, they send again by themselves at their next syncs;\n"
            "- devices that were removed are let in again: remove them once more, on a device of their vault;\n"
            "- vaults that were deleted are in use again: `crystal-relay vaults delete`;\n"
            "- vaults that were suspended, made read-only or given a quota are as they were: `crystal-relay vaults list`;\n"
            + (
                "- enrolment tokens have the uses they had then: `crystal-relay tokens list`."
                if keep_tokens
                else "- enrolment tokens were left out: `crystal-relay tokens create` makes new ones."
            )
        )
