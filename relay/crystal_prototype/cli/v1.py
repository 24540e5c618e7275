"""`crystal-relay v1`: tokens for devices that run the published prototype. A relay serves them with `serve --v1`."""

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


@v1.command()
def add(
    agent: Annotated[str, typer.Option(help="The agent's id in its devices' settings (CRYSTAL_AGENT_ID).")],
    role: Annotated[
        RoleOption,
        typer.Option(help="core reads conversations and commands, node reads the mirror and files."),
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
        made = operate(
            StorePlace.of_options(store, s3_endpoint, s3_allow_http),
            lambda operations: _first(operations, LetIn(token_hash(token), agent, Role(role), space)),
        )
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
    """List all tokens with their ids, agents, roles and spaces."""
    from crystal_prototype.relay.extension import ListTokens
    from crystal_prototype.relay.tokens import V1Token

    async def listed(operations: "Operations") -> list[V1Token]:
        return [each async for each in operations.extended(ListTokens(), V1Token)]

    with told(as_json=as_json):
        found = operate(StorePlace.of_options(store, s3_endpoint, s3_allow_http), listed)
        if as_json:
            show_json({"tokens": found})
        elif found:
            rows = [
                (each.id, each.agent_id, each.role, each.space, "yes" if each.revoked else "")
                for each in found
            ]
            show_table(("ID", "AGENT", "ROLE", "SPACE", "REVOKED"), rows)
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


async def _first(operations: "Operations", request: "LetIn | Revoke") -> "V1Token":
    from crystal_prototype.relay.tokens import V1Token

    return await anext(operations.extended(request, V1Token))
