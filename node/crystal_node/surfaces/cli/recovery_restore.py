"""``crystal recovery restore``: bring a vault back with its recovery kit."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from crystal_node.base.settings import Flags, enrolment_token, resolve
from crystal_node.base.wording import counted, iso, one_line
from crystal_node.device.device import name_in_vault
from crystal_node.safekeeping.recovery.files import FilesBack
from crystal_node.safekeeping.recovery.restore import Core, Restored, restore
from crystal_node.surfaces.cli.console.kit import read_kit
from crystal_node.surfaces.cli.console.options import DeviceName, Json, KeyStorePlace, Relay, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import ask, read_secret
from crystal_node.surfaces.cli.console.relay_link import relay_and_token
from crystal_node.surfaces.cli.console.terminal import is_terminal

Kit = Annotated[
    str,
    typer.Option(
        "--kit",
        metavar="FILE",
        help="The kit's text, or an offline code (mc3:); - asks for it line by line, or reads standard input.",
    ),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FOLDER",
        help="A copy of any device's home, for when the relay is gone or emptied, or that device's keys are. Only read.",
    ),
]
EnrolToken = Annotated[
    str | None,
    typer.Option(
        "--enroll-token",
        metavar="T",
        help="For a relay that does not have the vault: its enrolment token; - reads it from standard input.",
    ),
]
Claim = Annotated[
    bool, typer.Option("--claim", help="Make this machine the Core, because the old one is gone.")
]

_STANDARD_INPUT = "-"
_NAME_CHARS_MAX = 40
_SHOWN_MAX = 20


def run(
    kit: Kit = "-",
    source: From = None,
    relay: Relay = None,
    enroll_token: EnrolToken = None,
    claim: Claim = False,
    name: DeviceName = None,
    key_store: KeyStorePlace = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Bring the vault back with the recovery kit, as a new device.

    The kit and a relay that has the vault are enough. If the relay is gone or was emptied, a copy of any device's home
    (--from) brings back what that device had, on a new relay; its keys are not needed. Run again after an interruption, it
    continues where it stopped. Piped input is the enrolment token's line first, if that is read from there, then the kit.

    Example:

        crystal recovery restore --relay https://relay.example.org
        crystal recovery restore --from /mnt/old/.ldm --relay https://relay.example.org --enroll-token -
    """
    relay, enroll_token = relay_and_token(relay, enroll_token)
    settings = resolve(Flags(relay_url=relay, name=name, key_store=key_store))
    token = enrolment_token() if enroll_token is None else enroll_token
    if enroll_token == _STANDARD_INPUT:
        token = read_secret("The relay's enrolment token: ", what="enrolment token")
    found = read_kit(kit)
    if source is not None and not as_json:
        note(f"Copying {source}, which is only read, and checking the copy.")
    asks = is_terminal() and not yes and not as_json
    restored = asyncio.run(
        restore(
            settings,
            found,
            source=source,
            enrolment_token=token,
            lead=claim,
            wants_lead=_wants_lead if asks else lambda _: False,
        )
    )
    if as_json:
        emit(_document(restored))
    else:
        _tell(restored)


def _wants_lead(core: Core) -> bool:
    note(
        f"The Core ({_shown(core.device, core.name)}) {_seen(core)}. One machine has to be the Core, or nothing new is ordered."
    )
    return ask("Make this machine the Core? [yes/no] ")


def _tell(restored: Restored) -> None:
    settings = restored.settings
    if restored.fresh:
        say(
            f"Vault {restored.vault.hex()[:8]} is back, and this machine ({name_in_vault(settings)}) is a new device of it."
        )
    else:
        say(f"This machine was in vault {restored.vault.hex()[:8]} before; the relay knows it again.")
    say(f"  relay   {settings.relay_url}")
    say(
        f"  memory  up to epoch {restored.epoch}, slot {restored.sequence:,}, digest {restored.digest.hex()[:16]}"
    )
    if restored.is_core:
        say("  Core    this machine")
    elif restored.core is not None:
        say(f"  Core    {_shown(restored.core.device, restored.core.name)}, {_seen(restored.core)}")
    if restored.log_put_back or restored.mirror_put_back:
        say(
            f"  The relay was given back {counted(restored.log_put_back, 'slot')} of the device log and "
            f"{restored.mirror_put_back:,} of the mirror, byte for byte."
        )
    if restored.taken_over:
        say(f"  {counted(restored.taken_over, 'change')} that the other home had not sent came along.")
    if restored.files is not None:
        _tell_files(restored.files)
    else:
        say("  The files of the memory home come with the next `crystal sync`.")
    if restored.private:
        say("  Private mode is on, as it was there: nothing is recorded. `crystal private off` ends it.")
    if restored.from_home:
        _tell_lacks(restored)
    if restored.others:
        say()
        say(
            "These devices are still in the vault. Put out those that you have lost: `crystal devices revoke ID`"
        )
        for device, name in restored.others:
            say(f"  {_shown(device, name)}")
    if not restored.is_core:
        say()
        say("If the Core is lost, make this machine the Core: `crystal promote --force`")


def _tell_files(files: FilesBack) -> None:
    if files.gone:
        say(
            "! Its files could not be copied: that home is not there any more. What the relay has comes with `crystal sync`."
        )
        return
    say(
        f"  {counted(files.count, 'file')} of that home came along; `crystal sync` compares them with the vault's."
    )
    if files.unread:
        say(f"! {counted(len(files.unread), 'file')} of that home did not come along:")
    for path, why in files.unread[:_SHOWN_MAX]:
        say(f"    {one_line(f'{path}: {why}', 300)}")
    if len(files.unread) > _SHOWN_MAX:
        say(f"    and {len(files.unread) - _SHOWN_MAX:,} more (--json lists them)")


def _tell_lacks(restored: Restored) -> None:
    if not restored.relay_lost and not restored.lacks:
        say("  Settings and keys of that home's device were not taken over.")
        return
    say()
    say("This is the vault as that home had it. Not in it:")
    say("  what other devices recorded or forgot after that home's last sync;")
    say("  settings and keys of its device, and what that one had not recorded when it was copied.")
    for lack in restored.lacks:
        who = "That home itself" if lack.device is None else _shown(lack.device, lack.name)
        say(
            f"  {who} had applied up to epoch {lack.epoch}, slot {lack.sequence:,}, and this memory ends before."
        )
    say("Devices that you still have bring along what they hold: pair them with this relay (`crystal pair`).")


def _document(restored: Restored) -> dict[str, object]:
    core = restored.core
    return {
        "vault": restored.vault.hex(),
        "device": restored.device.hex(),
        "name": name_in_vault(restored.settings),
        "relay": restored.settings.relay_url,
        "home": str(restored.settings.home.root),
        "fresh": restored.fresh,
        "from_home": restored.from_home,
        "relay_lost": restored.relay_lost,
        "role": "core" if restored.is_core else "node",
        "core": {"id": core.device.hex(), "name": core.name, "seen_ms": core.seen_ms or None}
        if core
        else None,
        "epoch": restored.epoch,
        "seq": restored.sequence,
        "digest": restored.digest.hex(),
        "put_back": {"device_log": restored.log_put_back, "mirror": restored.mirror_put_back},
        "taken_over": restored.taken_over,
        "not_brought_back": [
            {"device": lack.device.hex() if lack.device else None, "epoch": lack.epoch, "seq": lack.sequence}
            for lack in restored.lacks
        ],
        "private": restored.private,
        "files": None
        if restored.files is None
        else {
            "copied": restored.files.count,
            "home_gone": restored.files.gone,
            "left_out": [{"path": path, "why": why} for path, why in restored.files.unread],
        },
        "others": [{"id": device.hex(), "name": name} for device, name in restored.others],
    }


def _seen(core: Core) -> str:
    return (
        f"last told where it stands at {iso(core.seen_ms)}" if core.seen_ms else "never told where it stands"
    )


def _shown(device: bytes, name: str | None) -> str:
    return f"{one_line(name or '?', _NAME_CHARS_MAX)} ({device.hex()[:8]})"
