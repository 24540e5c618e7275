"""`crystal-relay v1`: tokens for devices that run the published prototype. A relay serves them with `serve --v1`."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from crystal_relay.cli.failures import told
from crystal_relay.cli.operations import operate
from crystal_relay.cli.options import AsJson, S3AllowHttp, S3Endpoint, StoreAddress
from crystal_relay.cli.output import show_json, show_table, tell
from crystal_relay.cli.stores import StorePlace

if TYPE_CHECKING:
    from crystal_prototype.relay.extension import LetIn, Revoke
    from crystal_prototype.relay.tokens import V1Token
    from crystal_relay.server.operator import Operations

v1 = typer.Typer(
    help="Add, list and revoke devices of the published prototype.\n\nA relay serves them if it runs with --v1.",
    no_args_is_help=True,
)


class RoleOption(StrEnum):
    """Roles of a device. Repeated here so that help does not import the server."""

    CORE = "core"
    NODE = "node"
    SENDER = "sender"


@v1.command()
def add(
    agent: Annotated[str, typer.Option(help="The agent's id in its devices' settings (CRYSTAL_AGENT_ID).")],
    role: Annotated[
        RoleOption,
        typer.Option(
            help="core reads conversations and commands, node the mirror and files; sender only drops."
        ),
    ],
    space: Annotated[str, typer.Option(help="Devices see only the drops of their own space.")] = "default",
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Create a token for one device and print it, only once.

    Set it as CRYSTAL_RELAY_TOKEN on the device. Every device needs its own token. Drops are kept until each device has
    confirmed them, so revoke the token of a device that is no longer used.
    """
    from crystal_prototype.relay.extension import LetIn
    from crystal_prototype.relay.names import Role
    from crystal_prototype.relay.tokens import new_token, token_hash

    with told(as_json=as_json):
        token = new_token()
        place = StorePlace.of_options(store, s3_endpoint, s3_allow_http)
        new = place.directory is not None and not place.directory.exists()
        made = operate(
            place,
            lambda operations: _first(operations, LetIn(token_hash(token), agent, Role(role), space)),
            create=True,
        )
        if new and not as_json:
            tell(f"There was no store in {place.directory}: it was created, and a relay can serve it.")
        if as_json:
            show_json({"token": token, "id": made.id, "agent_id": agent, "role": made.role, "space": space})
        else:
            print(token, flush=True)
            tell(f"Token {made.id} for {agent} ({role}) in the space {space}, shown this once.")


@v1.command("list")
def show_tokens(
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """List all tokens with what waits for each.

    READ is when the device last asked for its drops, to the hour. Drops for a device that never reads fill the quota of its
    space. MISSED counts drops that were deleted before the device read them.
    """
    from crystal_prototype.relay.extension import ListTokens
    from crystal_prototype.relay.tokens import V1Token

    async def listed(operations: "Operations") -> list[V1Token]:
        return [each async for each in operations.extended(ListTokens(), V1Token)]

    with told(as_json=as_json):
        found = operate(StorePlace.of_options(store, s3_endpoint, s3_allow_http), listed)
        if as_json:
            show_json({"tokens": found})
        elif found:
            show_table(_HEADINGS, [_row(each) for each in found])
        else:
            tell("There is no such token. `crystal-relay v1 add` makes one.")


@v1.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="ID", help="The token's id, as `v1 list` shows it.")],
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Revoke a device's token at once.

    Drops kept only for it are deleted; its own drops stay for the others.
    """
    from crystal_prototype.relay.extension import Revoke

    with told(as_json=as_json):
        gone = operate(
            StorePlace.of_options(store, s3_endpoint, s3_allow_http),
            lambda operations: _first(operations, Revoke(name)),
        )
        if as_json:
            show_json(gone)
        else:
            print(f"Revoked: {gone.id} ({gone.agent_id}, {gone.role}, {gone.space}).")


_HEADINGS = ("ID", "AGENT", "ROLE", "SPACE", "READ", "WAITING", "BYTES", "MISSED", "REVOKED")


def _row(token: "V1Token") -> tuple[str, ...]:
    read = (
        datetime.fromtimestamp(token.read_at // 1000, UTC).strftime("%Y-%m-%d %H:%M") if token.read_at else ""
    )
    reads = token.role != RoleOption.SENDER.value
    counts = (token.waiting, token.waiting_bytes, token.missed) if reads else ("", "", "")
    return (
        token.id,
        token.agent_id,
        token.role,
        token.space,
        (read or "never") if reads else "",
        *map(str, counts),
        "yes" if token.revoked else "",
    )


async def _first(operations: "Operations", request: "LetIn | Revoke") -> "V1Token":
    from crystal_prototype.relay.tokens import V1Token

    return await anext(operations.extended(request, V1Token))
