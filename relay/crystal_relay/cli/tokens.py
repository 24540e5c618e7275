"""`crystal-relay tokens`: enrolment tokens, which allow their holders to create vaults."""

import math
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from crystal_relay.cli.failures import told
from crystal_relay.cli.operations import operate
from crystal_relay.cli.options import AsJson, S3AllowHttp, S3Endpoint, StoreAddress
from crystal_relay.cli.output import moment, show_json, show_table, size, tell
from crystal_relay.cli.stores import StorePlace
from crystal_relay.cli.vaults import seconds_of

if TYPE_CHECKING:
    from crystal_relay.server.enrollment import Enrollment, EnrollmentState
    from crystal_relay.server.operator import Operations

_LINK_LIVES = "7d"
"""How long a link is valid, unless the operator says otherwise."""


class TokenOrder(StrEnum):
    """Columns by which `tokens list` sorts."""

    MADE = "made"
    ID = "id"
    USED = "used"
    EXPIRES = "expires"
    LABEL = "label"


_ORDERS: "dict[TokenOrder, Callable[[Enrollment], tuple[int | float | str, ...]]]" = {
    TokenOrder.MADE: lambda each: (each.created, each.id),
    TokenOrder.ID: lambda each: (each.id,),
    TokenOrder.USED: lambda each: (-each.used, each.id),
    TokenOrder.EXPIRES: lambda each: (each.expires or math.inf, each.id),
    TokenOrder.LABEL: lambda each: (each.label.casefold(), each.id),
}

tokens = typer.Typer(
    help="Create, list and revoke enrolment tokens; close enrolment.\n\nThe holder of one can create vaults. A relay "
    "that runs with CRYSTAL_RELAY_ENROLL_TOKEN accepts that token, too.",
    no_args_is_help=True,
)


@tokens.command()
def create(
    label: Annotated[str, typer.Option(help="Whom it is for. Shown by `tokens list`.")] = "",
    uses: Annotated[
        int, typer.Option(min=0, max=1000, help="Vaults that it can create; 0 for any number.")
    ] = 1,
    expires: Annotated[
        str, typer.Option(help="How long it is valid: 12h, 7d, 2w.", show_default="for ever")
    ] = "",
    quota_bytes: Annotated[
        int, typer.Option(min=0, help="Bytes that each of its vaults may store; 0 for the relay's quota.")
    ] = 0,
    link: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Print one link of this relay address, with its #pin= if it has one, and the token. Valid for 7 days unless "
            "--expires says otherwise.",
        ),
    ] = None,
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Create an enrolment token and print it, only once.

    It is good for one vault, unless --uses says otherwise. The relay keeps its hash. With --link it prints the invitation of a
    person in one line, which `crystal up --relay -` takes as it is.
    """
    from crystal_relay.enrolment_link import enrolment_link
    from crystal_relay.server.enrollment import enrollment_hash, new_enrollment_token

    with told(as_json=as_json):
        lives = seconds_of(expires or (_LINK_LIVES if link is not None else "0s"))
        token = new_enrollment_token()
        shown = token if link is None else enrolment_link(link, token).text()

        async def work(operations: "Operations") -> "tuple[Enrollment, EnrollmentState]":
            made = await operations.enroll(
                enrollment_hash(token), label, uses=uses, lives_seconds=lives, quota_bytes=quota_bytes
            )
            return made, await operations.enrollment()

        made, state = operate(StorePlace.of_options(store, s3_endpoint, s3_allow_http), work)
        if as_json:
            linked = {} if link is None else {"link": shown}
            show_json(
                {"token": token} | linked | {name: getattr(made, name) for name in made.__struct_fields__}
            )
        else:
            print(shown, flush=True)
            taken = "`crystal init --enroll-token -`" if link is None else "`crystal up --relay -`"
            what = "Enrolment token" if link is None else "A link with the enrolment token"
            tell(f"{what} {made.id}, shown only once, {_limits(made)}. {taken} takes it.")
            _tell_closed(state)


@tokens.command("list")
def show_tokens(
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
    sort: Annotated[
        TokenOrder,
        typer.Option(help="The column to sort by; the most used, the soonest to expire, come first."),
    ] = TokenOrder.MADE,
) -> None:
    """List enrolment tokens with their ids, limits, uses and labels."""

    async def work(operations: "Operations") -> "tuple[list[Enrollment], EnrollmentState]":
        return await operations.enrollments(), await operations.enrollment()

    with told(as_json=as_json):
        found, state = operate(StorePlace.of_options(store, s3_endpoint, s3_allow_http), work)
        found.sort(key=_ORDERS[sort])
        if as_json:
            show_json({"closed": state.closed, "tokens": found})
            return
        _tell_closed(state)
        if found:
            rows = [
                (
                    each.id,
                    moment(each.created) if each.created else "first start",
                    f"{each.used} of {each.uses}" if each.uses else str(each.used),
                    moment(each.expires) if each.expires else "never",
                    size(each.quota_bytes) if each.quota_bytes else "",
                    each.label,
                )
                for each in found
            ]
            show_table(("ID", "MADE", "USED", "EXPIRES", "QUOTA", "LABEL"), rows)
        else:
            tell("There are no enrolment tokens.")


@tokens.command()
def close(
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Take no new vaults, whatever token they come with.

    Counts at once in a running relay, also for the token of its environment. Vaults that are here stay as they are.
    """
    _set_enrollment(StorePlace.of_options(store, s3_endpoint, s3_allow_http), closed=True, as_json=as_json)


@tokens.command("open")
def reopen(
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Take new vaults again, with a valid token."""
    _set_enrollment(StorePlace.of_options(store, s3_endpoint, s3_allow_http), closed=False, as_json=as_json)


@tokens.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="ID", help="The token's id, as `tokens list` shows it.")],
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Revoke an enrolment token at once. Its vaults stay.

    If none is left, the relay creates one at its next start.
    """
    with told(as_json=as_json):
        gone = operate(
            StorePlace.of_options(store, s3_endpoint, s3_allow_http),
            lambda operations: operations.revoke_enrollment(name),
        )
        if as_json:
            show_json(gone)
        else:
            print(f"Revoked: {gone.id}{f' ({gone.label})' if gone.label else ''}.")


def _tell_closed(state: "EnrollmentState") -> None:
    if state.closed:
        tell(
            f"Closed since {moment(state.since)}: no token creates a vault. `crystal-relay tokens open` ends it."
        )


def _set_enrollment(place: StorePlace, *, closed: bool, as_json: bool) -> None:
    with told(as_json=as_json):
        state = operate(place, lambda operations: operations.set_enrollment(closed=closed))
        if as_json:
            show_json(state)
        elif state.closed:
            print("Closed: this relay takes no new vaults. `crystal-relay tokens open` ends it.")
        else:
            print("Open: this relay takes new vaults with a valid token.")


def _limits(made: "Enrollment") -> str:
    often = (
        "any number of vaults" if not made.uses else "one vault" if made.uses == 1 else f"{made.uses} vaults"
    )
    until = f" until {moment(made.expires)}" if made.expires else ""
    each = f", {size(made.quota_bytes)} each" if made.quota_bytes else ""
    return f"good for {often}{until}{each}"
