"""``crystal init``: make this machine the Core of a new vault, or prepare it to join one."""

import asyncio
from typing import Annotated

import typer

from crystal_node.base.errors import UsageError
from crystal_node.base.settings import Flags, Settings, enrolment_token, resolve
from crystal_node.device.enrolment import found_vault, prepare_node
from crystal_node.surfaces.cli.console.options import (
    Agent,
    DeviceName,
    Json,
    KeyStorePlace,
    MachineRole,
    Relay,
    Yes,
)
from crystal_node.surfaces.cli.console.output import emit, say
from crystal_node.surfaces.cli.console.prompts import confirm, read_secret
from crystal_node.surfaces.cli.console.relay_link import relay_and_token
from crystal_node.surfaces.cli.console.terminal import is_terminal
from crystal_node.surfaces.cli.pair import join
from crystal_node.surfaces.cli.pair_code import check_argument
from crystal_node.surfaces.cli.recovery import offer_kit

_STANDARD_INPUT = "-"


Role = Annotated[
    MachineRole,
    typer.Option(
        "--role", help="core: the machine that embeds and orders. node: any other.", show_choices=True
    ),
]
EnrolToken = Annotated[
    str | None,
    typer.Option(
        "--enroll-token",
        metavar="T",
        help="The relay's enrolment token; - reads it from standard input. Default: CRYSTAL_RELAY_ENROLL_TOKEN.",
    ),
]
Code = Annotated[
    str | None,
    typer.Option(
        "--code",
        metavar="CODE",
        help="With --role node: join at once with this invite; - reads it, or an offline code, from standard input.",
    ),
]


def run(
    role: Role,
    relay: Relay = None,
    enroll_token: EnrolToken = None,
    code: Code = None,
    agent: Agent = None,
    name: DeviceName = None,
    key_store: KeyStorePlace = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Set up this machine as a Core, or prepare a Node.

    A Core begins a new vault; a Node joins one. Run again after an interruption, it continues where it stopped. On a Core
    that is set up it registers the vault at a relay again, for instance after the relay was emptied or moved.

    Example:

        crystal init --role core --relay https://relay.example.org --enroll-token -
    """
    relay, enroll_token = relay_and_token(relay, enroll_token)
    settings = resolve(Flags(relay_url=relay, agent=agent, name=name, key_store=key_store))
    if role is MachineRole.NODE:
        if enroll_token is not None:
            raise UsageError(
                "a Node needs no enrolment token",
                hint="It joins with the code that `crystal pair` shows on the Core.",
            )
        _init_node(settings, code, yes=yes, as_json=as_json)
        return
    if code is not None:
        raise UsageError(
            "a Core makes a new vault, it does not join one", hint="Use --role node with --code."
        )
    if not yes and not as_json and is_terminal() and settings.vault is None:
        confirm(
            f"Make a new vault in {settings.home.root}, with the relay {settings.relay_url or 'in it'}? [yes/no] ",
            expect="yes",
        )
    _init_core(settings, enroll_token, as_json)


def _init_core(settings: Settings, enroll_token: str | None, as_json: bool) -> None:
    token = enrolment_token() if enroll_token is None else enroll_token
    needed = bool(settings.relay_url) and not settings.relay_is_local
    if enroll_token == _STANDARD_INPUT or (needed and not token and is_terminal()):
        token = read_secret("The relay's enrolment token: ", what="enrolment token")
    enrolled = asyncio.run(found_vault(settings, token))
    settings = enrolled.settings
    place = "the system's keyring" if enrolled.keys.kind == "keyring" else str(settings.home.secrets)
    if as_json:
        emit(
            {
                "role": "core",
                "vault": enrolled.vault.hex(),
                "device": enrolled.device.hex(),
                "name": enrolled.name,
                "relay": settings.relay_url,
                "home": str(settings.home.root),
                "keys": enrolled.keys.kind.value,
                "root": enrolled.keys.kind.value,
                "fresh": enrolled.fresh,
            }
        )
        return
    if not enrolled.fresh:
        say(
            f"This machine was set up before; its vault is registered again at its relay ({settings.relay_words})."
        )
        return
    say(f"Vault {enrolled.vault.hex()[:8]} is made, and this machine ({enrolled.name}) is its Core.")
    say(f"  home   {settings.home.root}")
    say(f"  relay  {settings.relay_words}")
    say(f"  keys   {place}" + (f" ({enrolled.keys.reason})" if enrolled.keys.reason else ""))
    say()
    say("Next:  crystal capture          record this machine's conversations")
    say("       crystal up               hooks, and the background service")
    say("       crystal pair             bring another machine in")
    say()
    say("The vault's root is kept with the keys.")
    offer_kit(settings)


def _init_node(settings: Settings, code: str | None, *, yes: bool, as_json: bool) -> None:
    check_argument(code)
    if code is not None:
        join(settings, code, yes=yes, as_json=as_json)
        return
    if settings.vault is not None:
        raise UsageError("this machine is set up already", hint="`crystal status` shows how it stands.")
    prepared = prepare_node(settings)
    command = "crystal pair --code -"
    if as_json:
        emit(
            {
                "role": "node",
                "vault": None,
                "home": str(prepared.home.root),
                "relay": prepared.relay_url,
                "next": command,
            }
        )
        return
    say(
        f"{prepared.home.root} is ready. Now join your vault with the code that `crystal pair` shows on the Core:"
    )
    say(f"  {command}")
