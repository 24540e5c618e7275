"""``crystal bridge``: takes in what devices that still run the published prototype drop at their relay."""

from typing import Annotated

import typer

from crystal_node.base.errors import UsageError
from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, say

group = typer.Typer(
    help="Take in what the published prototype's devices drop.\n\nOne device of the vault does it; all get the conversations.",
    no_args_is_help=True,
    add_completion=False,
)
Url = Annotated[str, typer.Argument(metavar="URL", help="The relay that the prototype's devices use.")]


@group.command("add")
def add(url: Url, as_json: Json = False) -> None:
    """Add the bridge, with the prototype's key and a Core's token.

    It asks for both, and keeps them in this device's key store. Piped, the first line is the key, or the code that begins with
    mc1:, and the second one the token. `crystal-relay v1 add --role core` makes a token.

    Example:

        crystal bridge add https://relay.example
    """
    from msgspec import json

    from crystal_node.base.settings.checks import checked_url
    from crystal_node.device.bridge import BridgeReport, read_bridge, write_bridge
    from crystal_node.device.device import opened
    from crystal_node.surfaces.cli.console.prompts import read_secret
    from crystal_prototype.bridge import Bridge, Credentials

    where = checked_url(url, "the command line")
    key = read_secret("The prototype's relay key: ", what="key")
    credentials = Credentials.of(key, read_secret("A Core's token at that relay: ", what="token"))
    with opened(resolve()) as device:
        Bridge(device, where, credentials).check()
        before = read_bridge(device.journal)
        device.keys.keep_bridge(json.encode(credentials))
        write_bridge(
            device.journal, before if before is not None and before.url == where else BridgeReport(where)
        )
    if as_json:
        emit({"url": where})
        return
    say(f"Bridged: {where}. The background service asks it once a minute; `crystal bridge run` asks it now.")
    say("Commands that are dropped there are not run, and the prototype's Nodes get no mirror from here.")


@group.command("run")
def run(as_json: Json = False) -> None:
    """Take in now what waits there.

    Example:

        crystal bridge run
    """
    from crystal_node.device.device import opened
    from crystal_prototype.bridge import Bridge

    with opened(resolve()) as device:
        bridge = Bridge.of(device)
        if bridge is None:
            raise UsageError(
                "no bridge is set up on this device", hint="`crystal bridge add URL` sets it up."
            )
        done = bridge.run()
    if as_json:
        emit({"drops": done.drops, "messages": done.messages, "sealed": done.sealed, "unread": done.unread})
        return
    say(f"{counted(done.drops, 'drop')} taken in, with {counted(done.messages, 'new message')}.")
    if done.sealed:
        say(f"{counted(done.sealed, 'drop')} cannot be opened with the key, and stay there.")
    if done.unread:
        say(
            f"{counted(done.unread, 'drop')} hold something that is no message with a text. "
            "What could be read was taken in, and the drops stay there."
        )


@group.command("remove")
def remove(as_json: Json = False) -> None:
    """Remove the bridge, and its key and token here.

    Example:

        crystal bridge remove
    """
    from crystal_node.device.bridge import write_bridge
    from crystal_node.device.device import opened

    with opened(resolve()) as device:
        write_bridge(device.journal, None)
        device.keys.drop_bridge()
    if as_json:
        emit({"removed": True})
    else:
        say("The bridge is removed. Revoke its token at the relay: crystal-relay v1 revoke ID")
