"""`crystal-relay vaults`: show vaults, limit them, delete them."""

import re
import sys
from collections.abc import Callable
from decimal import Decimal
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
    from crystal_relay.server.operator import Operations, TermsState, VaultState, VaultSummary

VaultArgument = Annotated[str, typer.Argument(metavar="ID", help="The vault's id, as `vaults` shows it.")]
Reason = Annotated[str, typer.Option(help="Shown to the vault's people.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for the vault's id.")]
_FORM = re.compile(r"([0-9]{1,6})([smhdw])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

_SIZE = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,3}))? ?(|[kKMGT]i?B)\Z")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
OF_RELAY = "relay"


class VaultOrder(StrEnum):
    """Columns by which `vaults list` sorts."""

    ID = "id"
    OBJECTS = "objects"
    SIZE = "size"
    QUOTA = "quota"
    MADE = "made"
    USED = "used"
    TOKEN = "token"  # noqa: S105  (a column)
    STATE = "state"


_ORDERS: "dict[VaultOrder, Callable[[VaultSummary], tuple[int | str, ...]]]" = {
    VaultOrder.ID: lambda each: (each.vault,),
    VaultOrder.OBJECTS: lambda each: (-each.entries, each.vault),
    VaultOrder.SIZE: lambda each: (-each.bytes, each.vault),
    VaultOrder.QUOTA: lambda each: (-each.quota_bytes, each.vault),
    VaultOrder.MADE: lambda each: (-each.created, each.vault),
    VaultOrder.USED: lambda each: (each.last_used, each.vault),
    VaultOrder.TOKEN: lambda each: (each.token, each.vault),
    VaultOrder.STATE: lambda each: (_state(each), each.vault),
}

vaults = typer.Typer(help="Show, limit, export and delete vaults.")


@vaults.callback(invoke_without_command=True)
def _default(
    context: typer.Context,
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Show, limit, export and delete vaults.

    Without a further word: `list`.
    """
    if context.invoked_subcommand is None:
        show_vaults(store=store, s3_endpoint=s3_endpoint, s3_allow_http=s3_allow_http, as_json=as_json)
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
        VaultOrder,
        typer.Option(help="The column to sort by; the most, the newest, the longest unused come first."),
    ] = VaultOrder.ID,
) -> None:
    """Show each vault's size, origin, last use and state.

    USED is the day, in UTC, on which a device last showed a valid token; it is noted once a day.
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
                    size(each.quota_bytes) if each.quota_bytes else "",
                    moment(each.created) if each.created else "",
                    each.last_used,
                    each.token,
                    _state(each),
                )
                for each in found
            ]
            show_table(("VAULT", "OBJECTS", "SIZE", "QUOTA", "MADE", "USED", "BY TOKEN", "STATE"), rows)
        else:
            tell("There are no vaults. `crystal init` on a device creates one.")


@vaults.command()
def quota(
    vault: VaultArgument,
    given: Annotated[
        str,
        typer.Argument(
            metavar="SIZE", help="20GiB, 500MB, a number of bytes, or `relay` for the one it came with."
        ),
    ],
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Change how much a vault may store.

    Counts within seconds in a running relay. What is stored beyond a smaller quota stays; nothing is added to it.
    """
    with told(as_json=as_json):
        wanted = 0 if given == OF_RELAY else bytes_of(given)
        state = operate(
            StorePlace.of_options(store, s3_endpoint, s3_allow_http),
            lambda operations: operations.set_quota(vault, wanted),
        )
        if as_json:
            show_json(state)
        else:
            print(f"Its quota is {size(wanted)}." if wanted else "Its quota is the one that it came with.")
            _warn(state)


@vaults.command()
def suspend(
    vault: VaultArgument,
    reason: Reason = "",
    yes: Yes = False,
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Refuse a vault's devices until it is resumed.

    Asks for the vault's id. Nothing is deleted.
    """
    place = StorePlace.of_options(store, s3_endpoint, s3_allow_http)
    _limit(vault, "suspended", reason, place, yes=yes, as_json=as_json)


@vaults.command()
def read_only(
    vault: VaultArgument,
    reason: Reason = "",
    yes: Yes = False,
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Let a vault's devices read, but store and delete nothing.

    Asks for the vault's id. `vaults resume` ends it.
    """
    place = StorePlace.of_options(store, s3_endpoint, s3_allow_http)
    _limit(vault, "read-only", reason, place, yes=yes, as_json=as_json)


@vaults.command()
def resume(
    vault: VaultArgument,
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Open a suspended or read-only vault again."""
    place = StorePlace.of_options(store, s3_endpoint, s3_allow_http)
    _limit(vault, "open", "", place, yes=True, as_json=as_json)


@vaults.command("drop", hidden=True)
@vaults.command("delete")
def drop(
    vault: VaultArgument,
    grace: Annotated[
        str, typer.Option(help="How long it can be restored: 12h, 7d, 2w; at least 30m.")
    ] = "7d",
    yes: Yes = False,
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Refuse a vault's devices now, and delete it after a grace period.

    Asks for the vault's id. `vaults restore` undoes it until the grace period is over; after that nothing does. The devices
    keep their own copies. Copies in backups of the store, and in a bucket that keeps versions, remain.
    """

    async def work(operations: "Operations") -> "VaultState":
        summary = await operations.vault(vault)
        if not yes:
            _confirm(summary, "Its devices will be refused. Type its id to delete it:")
        return await operations.drop(vault, seconds)

    with told(as_json=as_json):
        from crystal_relay.server.operator import check_grace

        seconds = check_grace(seconds_of(grace))  # before the prompt
        state = operate(StorePlace.of_options(store, s3_endpoint, s3_allow_http), work)
        if as_json:
            show_json(state)
        elif state.dropped_until is not None:
            print(f"Its devices are refused; it is deleted after {moment(state.dropped_until)}.")
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
    """Restore a vault within the grace period of its deletion."""
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


def bytes_of(text: str) -> int:
    """Bytes of a size such as `20GiB` (binary) or `500MB` (decimal). Raises BadRequest."""
    found = _SIZE.match(text)
    if found is None:
        raise BadRequest(
            f"{text}: not a size", hint="Give a number and a unit: 500MB, 20GiB, 1.5TiB; or bytes."
        )
    unit = found[3].removesuffix("B")
    factor = (1024 if unit.endswith("i") else 1000) ** _POWERS[unit.removesuffix("i").upper()]
    count = int(Decimal(f"{found[1]}.{found[2] or 0}") * factor)
    if not 0 < count < 1 << 62:
        raise BadRequest(
            f"{text}: not a quota", hint=f"Give some bytes, or `{OF_RELAY}` for the one it came with."
        )
    return count


def _limit(vault: str, access: str, reason: str, place: StorePlace, *, yes: bool, as_json: bool) -> None:
    """Set who may use a vault how."""

    async def work(operations: "Operations") -> "TermsState":
        from crystal_relay.server.vault_terms import VaultAccess

        if not yes:
            done = "be refused" if access == "suspended" else "only read"
            _confirm(
                await operations.vault(vault), f"Its devices will {done} until it is resumed. Type its id:"
            )
        return await operations.set_access(vault, VaultAccess(access), reason)

    with told(as_json=as_json):
        state = operate(place, work)
        if as_json:
            show_json(state)
            return
        if state.access == "open":
            print("Open. Its devices have access again.")
        else:
            print("Suspended. Its devices are refused." if access == "suspended" else "Read-only.")
            print(f"To undo: crystal-relay vaults resume {vault}")
        _warn(state)


def _confirm(summary: "VaultSummary", question: str) -> None:
    """Raises BadRequest unless the vault's id is typed."""
    tell(f"Vault {summary.vault} has {summary.entries} objects, {size(summary.bytes)}.\n{question}")
    if sys.stdin.readline().strip() != summary.vault:
        raise BadRequest("not confirmed: nothing was changed", hint="Type the vault's id, or give --yes.")


def _warn(state: "VaultState | TermsState") -> None:
    if state.not_told:
        tell(
            f"{state.not_told} relay processes could not be told. Running ones learn of it within five minutes."
        )


def _state(summary: "VaultSummary") -> str:
    if summary.dropped_until is not None:
        return f"dropped, deleted after {moment(summary.dropped_until)}"
    return "in use" if summary.access == "open" else summary.access.value
