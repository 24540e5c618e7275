"""`crystal-relay tokens`: enrolment tokens, which allow their holders to create vaults."""

from typing import Annotated

import typer

from crystal_relay.cli.failures import told
from crystal_relay.cli.operations import operate
from crystal_relay.cli.options import AsJson, S3AllowHttp, S3Endpoint, StoreAddress
from crystal_relay.cli.output import moment, show_json, show_table, tell
from crystal_relay.cli.stores import StorePlace

tokens = typer.Typer(
    help="Create, list and revoke enrolment tokens.\n\nThe holder of one can create vaults. A relay that runs with "
    "CRYSTAL_RELAY_ENROLL_TOKEN accepts only that token.",
    no_args_is_help=True,
)


@tokens.command()
def create(
    label: Annotated[str, typer.Option(help="Whom it is for. Shown by `tokens list`.")] = "",
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Create an enrolment token and print it, only once.

    The relay keeps its hash.
    """
    from crystal_relay.server.enrollment import enrollment_hash, new_enrollment_token

    with told(as_json=as_json):
        token = new_enrollment_token()
        made = operate(
            StorePlace.of_options(store, s3_endpoint, s3_allow_http),
            lambda operations: operations.enroll(enrollment_hash(token), label),
        )
        if as_json:
            show_json({"token": token, "id": made.id, "label": made.label, "created": made.created})
        else:
            print(token, flush=True)
            tell(f"Enrolment token {made.id}, shown only once. `crystal init --enroll-token -` takes it.")


@tokens.command("list")
def show_tokens(
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """List enrolment tokens with their ids, times and labels."""
    with told(as_json=as_json):
        found = operate(
            StorePlace.of_options(store, s3_endpoint, s3_allow_http),
            lambda operations: operations.enrollments(),
        )
        if as_json:
            show_json({"tokens": found})
        elif found:
            rows = [
                (each.id, moment(each.created) if each.created else "first start", each.label)
                for each in found
            ]
            show_table(("ID", "MADE", "LABEL"), rows)
        else:
            tell("There are no enrolment tokens.")


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
