"""``crystal backup restore``: bring a backup back, as the same device or, with the recovery kit, as a new one."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from crystal_node.base.errors import UsageError
from crystal_node.base.given_paths import given_path
from crystal_node.base.settings import LOCAL_RELAY, Flags, enrolment_token, resolve
from crystal_node.base.wording import counted, iso
from crystal_node.safekeeping.backup.manifest import BackupManifest, Keys, read_manifest
from crystal_node.safekeeping.backup.restore import (
    RestoredAsNew,
    RestoredDevice,
    relay_of,
    restore_as_new,
    restore_device,
)
from crystal_node.surfaces.cli.console.kit import read_kit
from crystal_node.surfaces.cli.console.options import Json, Relay, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import confirm, read_secret
from crystal_node.surfaces.cli.console.relay_link import relay_and_token

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A backup: the folder with manifest.json.")]
KitFile = Annotated[
    str | None,
    typer.Option(
        "--kit",
        metavar="FILE",
        help="Bring it back as a new device, with the recovery kit in this file; - reads or asks for it.",
    ),
]
EnrolToken = Annotated[
    str | None,
    typer.Option(
        "--enroll-token",
        metavar="T",
        help="With --kit, for a relay that does not have the vault: its enrolment token; - reads it from standard input.",
    ),
]
Claim = Annotated[
    bool, typer.Option("--claim", help="With --kit: make this machine the Core, because the old one is gone.")
]

_STANDARD_INPUT = "-"
_ABOUT = """\
This makes this home the device of the backup, with the keys in it. If that device is still in use somewhere, the two would
conflict: then stop here, and bring the backup back as a new device (--kit).
"""


def run(
    folder: Folder,
    kit: KitFile = None,
    relay: Relay = None,
    enroll_token: EnrolToken = None,
    claim: Claim = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Bring a backup back into an empty home.

    With its keys, in the backup or on this machine, it is the device that it was, as of then; the next sync brings what
    came since. With the recovery kit (--kit) it becomes a new device of the vault, also on a relay that lost everything.
    All of the backup is read and checked before anything is written. Run again after an interruption, it continues.

    Example:

        crystal backup restore /media/disk/backups/crystal-1a2b3c4d-20260105T090000Z
        crystal backup restore /media/disk/backups/crystal-1a2b3c4d-20260105T090000Z --kit kit.txt
    """
    folder = given_path(folder)
    if kit is not None:
        _as_new(folder, kit, relay, enroll_token, claim=claim, as_json=as_json)
        return
    if relay is not None or enroll_token is not None or claim:
        raise UsageError(
            "--relay, --enroll-token and --claim are for a restore with the recovery kit",
            hint="Add --kit FILE.",
        )
    _as_it_was(folder, yes=yes, as_json=as_json)


def _as_it_was(folder: Path, *, yes: bool, as_json: bool) -> None:
    if not yes and read_manifest(folder).keys is not Keys.NONE:
        confirm("\nType restore to go on: ", expect="restore", about=_ABOUT, as_json=as_json)
    done = restore_device(resolve(), folder, None if as_json else note)
    if as_json:
        emit(_document(done.manifest, done) | {"keys": done.keys.value})
        return
    _tell(done)


def _as_new(
    folder: Path, kit: str, relay: str | None, enroll_token: str | None, *, claim: bool, as_json: bool
) -> None:
    manifest = read_manifest(folder)
    relay, enroll_token = relay_and_token(relay, enroll_token)
    settings = resolve(Flags(relay_url=relay))
    if not settings.relay_url:
        before = relay_of(folder)
        settings = settings.at_own_relay() if before == LOCAL_RELAY else resolve(Flags(relay_url=before))
    token = enrolment_token() if enroll_token is None else enroll_token
    if enroll_token == _STANDARD_INPUT:
        token = read_secret("The relay's enrolment token: ", what="enrolment token")
    found = read_kit(kit)
    anew = asyncio.run(
        restore_as_new(
            settings, folder, found, enrolment_token=token, lead=claim, tell=None if as_json else note
        )
    )
    if as_json:
        emit(_document(manifest, anew))
        return
    _tell_anew(anew)


def _tell(done: RestoredDevice) -> None:
    manifest = done.manifest
    say(
        f"{done.settings.home.root} is device {manifest.device[:8]} again, as it was at {iso(manifest.made_ms)}."
    )
    say(f"  {counted(len(manifest.items), 'file')} came back, and were compared with what was written.")
    if manifest.unsent:
        say(
            f"  {counted(manifest.unsent, 'change')} had not been durable then: the next sync offers them again."
        )
    if done.from_backup:
        say(
            "  Its keys came with the backup, and are files now. `crystal keys move --to keyring` puts them away."
        )
    say(
        "Next: `crystal sync` brings what came since. What it recorded since and never sent is not in this backup."
    )
    note("If that device is still in use somewhere, stop one of the two: they would conflict.")


def _tell_anew(anew: RestoredAsNew) -> None:
    restored = anew.restored
    say(
        f"Vault {restored.vault.hex()[:8]} is back, and this machine is a new device of it ({restored.device.hex()[:8]})."
    )
    say(
        f"  {'It is the Core now.' if restored.is_core else 'It is a Node.'} `crystal sync` brings the files up to date."
    )
    say(f"If the device of the backup is lost: `crystal devices revoke {anew.manifest.device[:8]}`")


def _document(manifest: BackupManifest, done: RestoredDevice | RestoredAsNew) -> dict[str, object]:
    anew = isinstance(done, RestoredAsNew)
    found: dict[str, object] = {
        "vault": manifest.vault,
        "device": done.restored.device.hex() if isinstance(done, RestoredAsNew) else manifest.device,
        "new_device": anew,
        "made_at": iso(manifest.made_ms),
        "files": len(manifest.items),
        "unsent": manifest.unsent,
    }
    return found | (
        {"role": "core" if done.restored.is_core else "node"} if isinstance(done, RestoredAsNew) else {}
    )
