"""``crystal pair``: shows the vault's code, or joins a vault with it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from crystal_node.cli.options import Debug, Json, Relay, Yes, confirm, is_terminal, read_secret
from crystal_node.cli.output import emit, note, say

if TYPE_CHECKING:
    from crystal_node.settings import Settings

Offline = Annotated[
    bool, typer.Option("--offline", help="Show the code that brings another machine into the vault.")
]
Code = Annotated[
    str | None,
    typer.Option(
        "--code", metavar="CODE", help="Join with this code; - reads it from standard input or asks for it."
    ),
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="What your other devices call this one.")
]

_WARNING = """\
The code opens the whole vault: who has it can read everything, add devices and take the lead.
Show it to nobody, photograph it nowhere, and clear the screen afterwards.
"""


def run(
    offline: Offline = False,
    code: Code = None,
    relay: Relay = None,
    name: Name = None,
    yes: Yes = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Bring another machine into the vault: show the code here, give it there.

    Without --offline, this machine joins a vault. The code is asked for without showing it, or read from standard input;
    on a command line it would stay in the shell's history. Joining again with the same code mends a lost relay token.

    Example:

        crystal pair --offline                                 (on a machine of the vault)
        crystal pair --code - --relay https://relay.example.org   (on the new machine)
    """
    from crystal_node.errors import Usage
    from crystal_node.settings import Flags, resolve

    settings = resolve(Flags(relay_url=relay, name=name))
    if offline and code is not None:
        raise Usage("--offline shows a code and --code takes one: not both at once")
    if offline:
        _show(settings, yes=yes, as_json=as_json)
    else:
        join(settings, code or "-", as_json)


def join(settings: "Settings", code: str, as_json: bool) -> None:
    """Joins with a code, or with one that is read when it is "-"."""
    import asyncio

    from crystal_crypto.pairing import decode
    from crystal_node.enrol import join_vault

    if code == "-":
        code = read_secret("The vault's code (mc1:…): ", what="code")
    else:
        note("The code is in your shell's history now: clear it, and use `--code -` next time.")
    enrolled = asyncio.run(join_vault(settings, decode(code).root))
    settings = enrolled.settings
    if as_json:
        emit(
            {
                "role": "node",
                "vault": enrolled.vault.hex(),
                "device": enrolled.device.hex(),
                "name": settings.name.value,
                "relay": settings.relay_url,
                "home": str(settings.home.root),
                "keys": enrolled.keys.kind.value,
                "fresh": enrolled.fresh,
            }
        )
        return
    if not enrolled.fresh:
        say(f"This machine was in the vault already; the relay {settings.relay_url} knows it again.")
        return
    say(f"This machine ({settings.name.value}) has joined vault {enrolled.vault.hex()[:8]}.")
    say()
    say("Next:  crystal capture          record this machine's conversations")
    say("       crystal sync --watch     stay in touch with the relay")
    say("       crystal search WORDS     find anything, offline")


def _show(settings: "Settings", *, yes: bool, as_json: bool) -> None:
    from crystal_crypto.pairing import encode
    from crystal_node.errors import NotSetUp, WrongCode
    from crystal_node.keys import open_keys

    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    root = open_keys(settings.home, settings.config.key_store).root()
    if root is None or root.vault != settings.vault:
        raise WrongCode(
            "this machine does not hold the vault's root",
            hint="Show the code on the Core, or on a machine that joined with it.",
        )
    if not yes:
        note(_WARNING)
        confirm("Type show to show it: ", expect="show")
    text = encode(root)
    if as_json:
        emit({"code": text})
        return
    say(text)
    if is_terminal(output=True):
        _qr(text)


def _qr(text: str) -> None:
    import sys

    import qrcode
    from qrcode.constants import ERROR_CORRECT_L

    code: qrcode.QRCode[Any] = qrcode.QRCode(border=2, error_correction=ERROR_CORRECT_L)
    code.add_data(text)
    code.make(fit=True)
    code.print_ascii(out=sys.stdout, invert=True)
