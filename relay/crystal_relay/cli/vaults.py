"""`crystal-relay vaults`: show, drop and restore vaults."""

import re
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from crystal_relay.cli.failures import told
from crystal_relay.cli.operations import operate
from crystal_relay.cli.options import AsJson, S3AllowHttp, S3Endpoint, StoreAddress
from crystal_relay.cli.output import moment, show_json, show_table, size, tell
from crystal_relay.cli.stores import StorePlace
from crystal_relay.errors import BadRequest

if TYPE_CHECKING:
    from crystal_relay.server.operator import Operations, VaultState, VaultSummary

VaultArgument = Annotated[str, typer.Argument(metavar="ID", help="The vault's id, as `vaults` shows it.")]
_FORM = re.compile(r"([0-9]{1,6})([smhdw])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class VaultOrder(StrEnum):
    """Columns by which `vaults list` sorts."""

    ID = "id"
    OBJECTS = "objects"
    SIZE = "size"
    MADE = "made"
    TOKEN = "token"  # noqa: S105  (a column)


_ORDERS: "dict[VaultOrder, Callable[[VaultSummary], tuple[int | str, ...]]]" = {
    VaultOrder.ID: lambda each: (each.vault,),
    VaultOrder.OBJECTS: lambda each: (-each.entries, each.vault),
    VaultOrder.SIZE: lambda each: (-each.bytes, each.vault),
    VaultOrder.MADE: lambda each: (-each.created, each.vault),
    VaultOrder.TOKEN: lambda each: (each.token, each.vault),
}

vaults = typer.Typer(help="Show, drop and restore vaults.")


@vaults.callback(invoke_without_command=True)
def _default(
    context: typer.Context,
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Show, drop and restore vaults.

    Without a further word: `list`.
    """
    if context.invoked_subcommand is None:
        show_vaults(store, s3_endpoint, s3_allow_http, as_json)
        return
    for name in ("store", "s3_endpoint", "s3_allow_http", "as_json"):
        # Otherwise `vaults --store X drop ID` would drop a vault of another store.
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"options come after `{context.invoked_subcommand}`")


@vaults.command("list")
def show_vaults(
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
    sort: Annotated[
        VaultOrder, typer.Option(help="The column to sort by; the most, the newest, come first.")
    ] = VaultOrder.ID,
) -> None:
    """Show each vault's objects, bytes, origin and state.

    Lists every object of the store: on object storage that is one paid request for each 1,000.
    """

    async def work(operations: "Operations") -> "list[VaultSummary]":
        return [summary async for summary in operations.vaults()]

    with told(as_json=as_json):
        found = operate(StorePlace.of_options(store, s3_endpoint, s3_allow_http), work)
        found.sort(key=_ORDERS[sort])
        if as_json:
            show_json({"vaults": found})
        elif found:
            rows = [
                (
                    each.vault,
                    str(each.entries),
                    size(each.bytes),
                    moment(each.created) if each.created else "",
                    each.token,
                    _state(each.dropped_until),
                )
                for each in found
            ]
            show_table(("VAULT", "OBJECTS", "SIZE", "MADE", "BY TOKEN", "STATE"), rows)
        else:
            tell("There are no vaults. `crystal init` on a device creates one.")


@vaults.command()
def drop(
    vault: VaultArgument,
    grace: Annotated[
        str, typer.Option(help="How long it can be restored: 12h, 7d, 2w; at least 30m.")
    ] = "7d",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the vault's id.")] = False,
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Refuse a vault's devices now, and delete it after the grace period.

    Asks for the vault's id. `vaults restore` undoes it until the grace period is over; after that nothing does. The devices
    keep their own copies.
    """

    async def work(operations: "Operations") -> "VaultState":
        summary = await operations.vault(vault)
        if not yes:
            _confirm(summary)
        return await operations.drop(vault, seconds)

    with told(as_json=as_json):
        from crystal_relay.server.operator import check_grace

        seconds = check_grace(seconds_of(grace))  # before the prompt
        state = operate(StorePlace.of_options(store, s3_endpoint, s3_allow_http), work)
        if as_json:
            show_json(state)
        elif state.dropped_until is not None:
            print(f"Dropped. Its devices are refused; it is deleted after {moment(state.dropped_until)}.")
            print(f"To undo: crystal-relay vaults restore {vault}")
            _warn(state)


@vaults.command()
def restore(
    vault: VaultArgument,
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Restore a dropped vault within its grace period."""
    with told(as_json=as_json):
        state = operate(
            StorePlace.of_options(store, s3_endpoint, s3_allow_http),
            lambda operations: operations.restore(vault),
        )
        if as_json:
            show_json(state)
        else:
            print("Restored. Its devices have access again.")
            _warn(state)


def seconds_of(text: str) -> int:
    """Seconds of a time such as `12h` or `7d`. Raises BadRequest."""
    found = _FORM.match(text)
    if found is None:
        raise BadRequest(f"{text}: not a time", hint="Give a number and a unit: 90s, 30m, 12h, 7d, 2w.")
    return int(found[1]) * _SECONDS[found[2]]


def _confirm(summary: "VaultSummary") -> None:
    """Raises BadRequest unless the vault's id is typed."""
    tell(
        f"Vault {summary.vault} has {summary.entries} objects, {size(summary.bytes)}.\n"
        "Its devices will be refused. Type its id to drop it:"
    )
    if sys.stdin.readline().strip() != summary.vault:
        raise BadRequest("not confirmed: nothing was changed", hint="Type the vault's id, or give --yes.")


def _warn(state: "VaultState") -> None:
    if state.not_told:
        tell(
            f"{state.not_told} relay processes could not be told. Running ones learn of it within five minutes."
        )


def _state(dropped_until: int | None) -> str:
    return "in use" if dropped_until is None else f"dropped, deleted after {moment(dropped_until)}"
