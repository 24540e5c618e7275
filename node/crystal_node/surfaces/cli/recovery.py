"""``crystal recovery``: show the recovery kit, check it, and replace the root."""

import asyncio
import hmac
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from crystal_crypto.hierarchy import Root
from crystal_crypto.kit import decode_line, encode_kit
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.membership.authority import in_force
from crystal_node.base.errors import UsageError, WrongCode
from crystal_node.base.home import write_private
from crystal_node.base.settings import Settings, resolve
from crystal_node.device.device import opened
from crystal_node.device.recovery_kit import KitPage, check_kit, kit_mark, remove_root
from crystal_node.safekeeping.pairing.qr import Fit, check_file, draw, write
from crystal_node.surfaces.cli.console.kit import Compare, KitFile, read_kit, root_from_kit
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import ask, confirm
from crystal_node.surfaces.cli.console.terminal import is_terminal, screen
from crystal_node.surfaces.cli.recovery_restore import run as run_restore
from crystal_node.sync.administration.root_rotation import replace_root

group = typer.Typer(
    help="Make, check and use the vault's recovery kit.\n\nIts six lines bring the whole vault back when every device is lost.",
    no_args_is_help=True,
)

Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write the page to this file, that only you can read."),
]
Qr = Annotated[
    Path | None,
    typer.Option(
        "--qr", metavar="FILE", help="Write the same as a QR: a PNG or an SVG, by the name's ending."
    ),
]
KitFrom = Annotated[
    str,
    typer.Option("--file", metavar="FILE", help="Read the kit from this file; - asks for it line by line."),
]
RemoveRoot = Annotated[
    bool,
    typer.Option(
        "--remove-root", help="Then remove the vault's root from this machine: the kit alone holds it."
    ),
]

_WARNING = """\
The recovery kit opens the whole vault: anybody who has it can read everything, add devices, revoke devices and become the Core.
Show it to nobody, photograph it nowhere. If you lose all of your devices and the kit, the vault is lost.
"""
_COST = """\
This machine still keeps the vault's root. Without it, a thief of this machine cannot let themselves in again after you
revoked it. What it costs: offline codes (`crystal pair --offline`), becoming the Core by force, and revoking a device that held
the root need the kit from then on.
"""


@group.command("show")
def show(out: Out = None, qr: Qr = None, yes: Yes = False, as_json: Json = False) -> None:
    """Show this vault's recovery kit, to be printed or written down.

    Only a machine that holds the vault's root can. With --out or --qr nothing secret is shown on the screen.

    Example:

        crystal recovery show
        crystal recovery show --out kit.txt --qr kit.png
    """
    if qr is not None:
        check_file(qr)
    if out is not None:
        _check_folder(out)
    settings = resolve()
    page = _page(settings)
    if not yes:
        confirm("\nType show to show it: ", expect="show", about=_WARNING, as_json=as_json)
    if out is not None:
        write_private(out, page.text().encode("ascii"))
    if qr is not None:
        write(page.code, qr)
    if as_json:
        emit(_document(page, out, qr))
    elif out is None and qr is None:
        say(page.text().rstrip("\n"))
        _draw(page.code)
    for path in (out, qr):
        if path is not None:
            note(f"The kit is in {path}. Print it, then delete that file.")
    note("Then check it: `crystal recovery verify` has you type it back.")


@group.command("verify")
def verify(
    file: KitFrom = "-",
    remove_root: RemoveRoot = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Check the recovery kit by typing it back.

    Each line is checked as it is typed. Without a terminal the kit is read from standard input. Afterwards the vault's root
    may be removed from this machine, so that the kit alone holds it. --remove-root asks before it does; --yes does not.

    Example:

        crystal recovery verify
    """
    settings = resolve()
    if remove_root and not yes and file == "-" and not is_terminal():
        raise UsageError(
            "the kit comes through a pipe, so nobody can confirm that the root is to be removed; nothing was done",
            hint="Add --yes.",
        )
    root, log = _root_and_log(settings)
    kit = read_kit(file, _comparing(root, log))
    check_kit(kit, log)
    settings = settings.save(msgspec.structs.replace(settings.config, kit_verified=kit_mark(kit.root)))
    if root is not None and remove_root and not yes:
        confirm("Type remove to go on: ", expect="remove", about=_COST, as_json=as_json)
    removed = root is not None and _removed(settings, asks=not yes and not as_json, remove=remove_root)
    if as_json:
        emit(
            {
                "verified": True,
                "vault": kit.vault.hex(),
                "root_here": root is not None and not removed,
                "root_removed": removed,
            }
        )
        return
    say(f"The kit is right: it brings back vault {kit.vault.hex()[:8]}, as its root is now.")
    if removed:
        say("The vault's root is removed from this machine. Keep the kit well.")


group.command("restore")(run_restore)


@group.command("replace")
def replace(kit: KitFile = None, yes: Yes = False, as_json: Json = False) -> None:
    """Replace the vault's root, because a kit or code was exposed.

    For a kit or an offline code that was lost, or seen by somebody. Those made before then have no power. The new root is
    on this machine only, until you have made a new kit. No device is revoked: for that, `crystal devices revoke` replaces
    the root by itself where it must.

    Example:

        crystal recovery replace
        crystal recovery replace --kit kit.txt     (on a machine that does not hold the root)
    """
    with opened(resolve()) as device:
        if not yes:
            about = "Every recovery kit and offline code made so far becomes worthless, and a new kit has to be made."
            confirm("Type replace to go on: ", expect="replace", about=about, as_json=as_json)
        root = None if kit is None else root_from_kit(kit, device.member.vault)
        error = asyncio.run(replace_root(device, kit=root))
        number = device.member.log.root_number
    if as_json:
        emit(
            {"root_number": number, "relay_told": error is None, "relay_error": str(error) if error else None}
        )
        return
    say(
        "The vault has a new root; the old one has no power any more. It is on this machine only. Now make its kit:"
    )
    say("  crystal recovery show")
    say("  crystal recovery verify")
    if error is not None:
        note(f"The relay could not be told yet ({error}); the next `crystal sync` tells it.")


def offer_kit(settings: Settings) -> None:
    """At the end of ``crystal init``: say how to get the kit, and offer it at a terminal."""
    say("If you lose all of your devices and the vault's recovery kit, the vault is lost. Make the kit now:")
    say("  crystal recovery show      six lines, to be printed or written down")
    say("  crystal recovery verify    type them back, and know that they work")
    if not (is_terminal() and is_terminal(output=True)):
        return
    if ask("Show the recovery kit now? [yes/no] "):
        page = _page(settings)
        say()
        say(page.text().rstrip("\n"))
        _draw(page.code)


def _page(settings: Settings) -> KitPage:
    with opened(settings) as device:
        root, log, name = device.root, device.member.log, device.name
    if root is None:
        raise WrongCode(
            "this machine does not hold the vault's root, so it cannot make a kit",
            hint="Make it on the machine where the vault began. `crystal recovery verify` checks a kit on any machine.",
        )
    if not in_force(log, root):
        raise WrongCode(
            "the root that this machine holds was replaced: a kit of it would open nothing",
            hint="Make the kit on the machine that replaced it. `crystal devices` shows which hold the root.",
        )
    return KitPage(
        root=root,
        vault=log.vault,
        relay=f"in the home of {name}: a backup of it is needed as well"
        if settings.relay_is_local
        else settings.relay_url,
        made=datetime.now(UTC).strftime("%Y-%m-%d"),
        device=name,
        number=log.root_number,
    )


def _root_and_log(settings: Settings) -> tuple[Root | None, DeviceLog]:
    with opened(settings) as device:
        return device.root, device.member.log


def _comparing(root: Root | None, log: DeviceLog) -> Compare | None:
    """A comparison of single lines, if the root is here; else None: the whole kit is compared with the log."""
    if root is None or not in_force(log, root):
        return None
    lines = [decode_line(number, line) for number, line in enumerate(encode_kit(root, log.vault), start=1)]
    return lambda number, data: hmac.compare_digest(lines[number - 1], data)


def _removed(settings: Settings, *, asks: bool, remove: bool) -> bool:
    """Remove the root if that is wanted. Returns whether it is gone."""
    if not remove and asks and is_terminal():
        note(_COST)
        remove = ask("Remove it from this machine? [yes/no] ")
    if remove:
        with opened(settings) as device:
            remove_root(device)
    return remove


def _document(page: KitPage, out: Path | None, qr: Path | None) -> dict[str, object]:
    """The JSON document. It has the secret only if no file was asked for."""
    document: dict[str, object] = {"vault": page.vault.hex(), "relay": page.relay, "made": page.made}
    if out is None and qr is None:
        return document | {"lines": list(page.lines), "code": page.code, "text": page.text()}
    return document | {"out": str(out) if out else None, "qr": str(qr) if qr else None}


def _draw(code: str) -> None:
    """Draw the QR below the page, if the terminal can show it."""
    if not is_terminal(output=True):
        return
    drawing = draw(code, screen())
    if drawing.fit is not Fit.DRAWN:
        note(f"No QR: {drawing.fit}. `crystal recovery show --qr kit.png` makes a picture.")
    for line in drawing.lines:
        say(line)


def _check_folder(path: Path) -> None:
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(
            f"{path} cannot be written: no such folder", hint="Name a file in a folder that is there."
        )
