"""``crystal vault``: have the relay delete the vault, or call that off."""

import asyncio
from typing import Annotated

import typer

from crystal_mirror.membership.status import devices
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import Settings, resolve
from crystal_node.base.wording import counted, iso
from crystal_node.device.device import Device, opened
from crystal_node.surfaces.cli.console.kit import KitFile, root_from_kit
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, say
from crystal_node.surfaces.cli.console.prompts import confirm
from crystal_node.sync.administration.vault_deletion import DAYS, ask_deletion, keep_vault

group = typer.Typer(
    help="Delete the vault at its relay, or call that off.\n\nThe memory on the devices stays.",
    no_args_is_help=True,
)

Days = Annotated[
    int, typer.Option(min=1, help="Days that the relay waits, during which it can be called off.")
]


@group.command("delete")
def delete(days: Days = DAYS, kit: KitFile = None, yes: Yes = False, as_json: Json = False) -> None:
    """Delete everything of the vault at its relay, after a waiting time.

    It takes the vault's root: a machine that holds it, or the recovery kit. Until the time is over all goes on as before,
    every device says so, and `crystal vault keep` calls it off. The memory on the devices stays.

    Example:

        crystal vault delete
        crystal vault delete --days 14 --kit kit.txt
    """
    settings = resolve()
    _check_elsewhere(settings)
    with opened(settings) as device:
        short = device.member.vault.hex()[:8]
        if not yes:
            confirm(
                f"\nType {short}, the beginning of the vault's id, to go on: ",
                expect=short,
                about=_about(device, days),
                as_json=as_json,
            )
        root = None if kit is None else root_from_kit(kit, device.member.vault)
        waits = asyncio.run(ask_deletion(device, days, kit=root))
    planned = waits.planned
    if as_json:
        emit({"number": planned.number, "due": iso(planned.due * 1000), "fresh": waits.fresh})
        return
    already = "" if waits.fresh else "That was asked for before. "
    say(f"{already}The relay deletes the vault on {planned.day}. Every device says so from its next sync on.")
    say("To call it off, on the Core or with the recovery kit: crystal vault keep")


@group.command("keep")
def keep(kit: KitFile = None, as_json: Json = False) -> None:
    """Cancel the deletion of the vault at its relay.

    On the Core, on a machine that holds the vault's root, or with the recovery kit.

    Example:

        crystal vault keep
        crystal vault keep --kit -
    """
    with opened(resolve()) as device:
        root = None if kit is None else root_from_kit(kit, device.member.vault)
        called_off = asyncio.run(keep_vault(device, kit=root))
    if as_json:
        emit({"called_off": called_off})
    else:
        say(
            "The deletion is called off: the vault stays at the relay."
            if called_off
            else "Nothing to call off: the relay keeps the vault."
        )


def _check_elsewhere(settings: Settings) -> None:
    if settings.relay_is_local:
        raise UsageError(
            "this vault's relay is in this home, so nothing of the vault is with anybody else",
            hint="`crystal uninstall --purge` removes the home with everything in it.",
        )


def _about(device: Device, days: int) -> str:
    member, relay = device.member, device.settings.relay_words
    count = sum(entry.info.revoked is None for entry in devices(member))
    return f"""\
After {counted(days, "day")} the relay at {relay} deletes all that it has of vault {member.vault.hex()[:8]}: the sealed log,
snapshots, files and commands, and the access of {counted(count, "device")}.
  Lost:   what only the relay has then (see "behind" in `crystal devices`), and the way back by the recovery kit alone.
          The devices are in step no longer, and no new one can join.
  Stays:  the memory on every device, searched as before. What the relay's operator has in backups and logs, sealed.
Until then all goes on as before, every device says so, and `crystal vault keep` calls it off."""
