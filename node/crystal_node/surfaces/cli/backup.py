"""``crystal backup``: make, list and check backups of this device's home."""

from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs

from crystal_crypto.errors import CrystalError
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.membership.member import load_keys
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import LocalStorage, NotSetUp, UsageError
from crystal_node.base.given_paths import given_path
from crystal_node.base.home import write_private
from crystal_node.base.settings import Settings, resolve
from crystal_node.base.settings.options import BY_NAME
from crystal_node.base.wording import ago, counted, iso, printable, size
from crystal_node.device.activity import Activity
from crystal_node.device.activity import note as note_moment
from crystal_node.device.device import opened
from crystal_node.device.keys.device_keys import open_keys
from crystal_node.safekeeping.backup.creation import BackedUp, Subject, back_up, ready_destination
from crystal_node.safekeeping.backup.folder import DESTINATION_MARK, FoundBackup, backups
from crystal_node.safekeeping.backup.manifest import Keys
from crystal_node.safekeeping.backup.verification import verify_backup
from crystal_node.surfaces.cli.backup_restore import run as run_restore
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say

group = typer.Typer(no_args_is_help=False)

To = Annotated[
    Path | None,
    typer.Option("--to", metavar="FOLDER", help="The folder that backups go to, best on another disk."),
]
Keep = Annotated[
    int | None,
    typer.Option(
        "--keep", metavar="N", min=1, help="Keep the newest N of this device, and delete older ones."
    ),
]
WithKeys = Annotated[
    bool,
    typer.Option(
        "--with-keys",
        help="Put this device's keys into it, too: anybody who has such a backup can act as this device.",
    ),
]
Every = Annotated[
    int | None,
    typer.Option("--every-hours", metavar="H", min=1, help="How often the background service makes one."),
]
Off = Annotated[bool, typer.Option("--off", help="Make no more backups automatically. What is there stays.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A backup: the folder with manifest.json.")]


@group.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    to: To = None,
    keep: Keep = None,
    with_keys: WithKeys = False,
    as_json: Json = False,
) -> None:
    """Back up this device's home, and read the backup back.

    Everything goes on meanwhile. Without --to it goes to the folder chosen with `crystal backup setup`, which keeps the
    number of backups set there. With --to nothing is deleted unless --keep says so. The keys stay out unless --with-keys
    puts them in: then protect the backup like a key.

    Example:

        crystal backup --to /media/disk/backups
        crystal backup --to /media/disk/backups --keep 7
    """
    if context.invoked_subcommand is not None:
        return

    settings = resolve()
    with opened(settings) as device:
        done = back_up(
            settings,
            Subject.of(device),
            to or _configured(settings),
            count=keep or (settings.backup.keep if to is None else None),
            with_keys=with_keys,
            marked=to is None,
            tell=None if as_json else note,
        )
        note_moment(device.journal, Activity.BACKUP, now_ms())
    if as_json:
        emit(_document(done))
    else:
        _tell(done)


@group.command("setup")
def setup(
    to: To = None,
    keep: Keep = None,
    every_hours: Every = None,
    off: Off = False,
    as_json: Json = False,
) -> None:
    """Choose where backups go, how many stay, and how often.

    The folder gets a mark, so that an empty mount point is not taken for it when its disk is away.

    Example:

        crystal backup setup --to /media/disk/backups --keep 7 --every-hours 24
    """
    settings = resolve()
    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    if off == (to is not None):
        raise UsageError(
            "no folder was given", hint="Add --to FOLDER, or --off to make none by itself any more."
        )
    wanted = {"backup_keep": keep, "backup_every_hours": every_hours}
    changes: dict[str, object] = {
        name: BY_NAME[name].check(str(value), "the command line")
        for name, value in wanted.items()
        if value is not None
    }
    changes["backup_folder"] = None
    if to is not None:
        destination = ready_destination(settings, to, marked=False)
        write_private(destination / DESTINATION_MARK, b"Backups of Memory Crystal go to this folder.\n")
        changes["backup_folder"] = str(destination)
    settings.save(structs.replace(settings.config, **changes))
    _tell_setup(resolve(), as_json=as_json)


@group.command("list")
def list_backups(to: To = None, as_json: Json = False) -> None:
    """List the backups in a folder, of this and other devices.

    Only their manifests are read; `crystal backup verify` reads all of a backup.

    Example:

        crystal backup list
    """
    settings = resolve()
    destination = given_path(to or _configured(settings))
    if not destination.is_dir():
        raise LocalStorage(f"there is no folder {destination}", hint="Is its disk attached?")
    found = backups(destination)
    if as_json:
        emit({"folder": str(destination), "backups": [_backup_document(each) for each in found]})
        return
    if not found:
        say(f"There are no backups in {destination}.")
    for each in found:
        say(_line(each))


@group.command("verify")
def verify(folder: Folder, as_json: Json = False) -> None:
    """Check every file, database and digest of a backup.

    Each file is compared with its hash, and each one that differs is named. The digest of the memory is checked only on a
    machine that has a key of the vault. Without Crystal, `sha256sum -c SHA256SUMS` in the backup's folder checks the files.

    Example:

        crystal backup verify /media/disk/backups/crystal-1a2b3c4d-20260105T090000Z
    """
    settings = resolve()
    found = verify_backup(given_path(folder), lambda log: _secret(settings, log), None if as_json else note)
    manifest = found.manifest
    if as_json:
        emit(
            {
                "ok": not found.problems,
                "problems": [{"path": path, "what": what} for path, what in found.problems.items()],
                "files": len(manifest.items),
                "bytes": manifest.bytes,
                "digest": found.digest or None,
                "digest_checked": bool(found.digest),
                "locked": found.locked,
            }
        )
    else:
        for path, what in found.problems.items():
            say(printable(f"{path}: {what}"))
    found.check()
    if not as_json:
        digest = (
            "the memory's rows are what their digest says"
            if found.digest
            else "the databases were not checked inside: they are encrypted, and their key is not here"
            if found.locked
            else "the digest was not checked: no key of the vault is here"
        )
        say(f"Whole: {counted(len(manifest.items), 'file')}, {size(manifest.bytes)}; {digest}.")


group.command("restore")(run_restore)


def _configured(settings: Settings) -> Path:
    if settings.backup.folder is None:
        raise UsageError(
            "no folder for backups was given",
            hint="Add --to FOLDER, or choose one for good: `crystal backup setup --to FOLDER`.",
        )
    return settings.backup.folder


def _secret(settings: Settings, log: DeviceLog) -> VaultSecret | None:
    """The vault's secret, if this device is in that log and its keys can be opened."""
    if settings.vault != log.vault:
        return None
    try:
        keys = open_keys(settings.home, settings.config.key_store, settings.config.keyring_backend)
        try:
            identity = keys.identity()
            return None if identity is None else load_keys(identity, log)[1]
        finally:
            keys.close()
    except CrystalError as error:
        note(f"The digest is not checked: {error}.")
        return None


def _tell(done: BackedUp) -> None:
    manifest = done.manifest
    say(
        f"Backed up {counted(len(manifest.items), 'file')}, {size(manifest.bytes)}, in {ago(done.seconds)}: {done.folder}"
    )
    say("It was read back: all of it is as it was written.")
    match manifest.keys:
        case Keys.NONE:
            say("This device's keys are not in it: to bring it back you need them, or the recovery kit.")
        case Keys.PLAIN:
            say(
                "THIS DEVICE'S KEYS ARE IN IT: anybody who has it can act as this device. Keep it like a key."
            )
        case Keys.SEALED:
            say("This device's keys are in it, closed by their passphrase.")
    for each in manifest.left_out[:10]:
        say(printable(f"  not in it: {each.path} ({each.why})"))
    if len(manifest.left_out) > 10:
        say(f"  and {len(manifest.left_out) - 10:,} more, which manifest.json lists")
    if done.unread:
        say("No older backup was deleted, as some files could not be read.")
    if done.gone:
        say(f"Deleted {counted(len(done.gone), 'older backup')}.")
    for path in done.spared:
        say(f"Not deleted, as it is not as it was written, or holds something else: {path}")


def _tell_setup(settings: Settings, *, as_json: bool) -> None:
    backup = settings.backup
    if as_json:
        emit(
            {
                "folder": str(backup.folder) if backup.folder else None,
                "keep": backup.keep,
                "every_hours": backup.every_hours,
            }
        )
    elif backup.folder is None:
        say("No backup is made automatically any more. What is there stays.")
    else:
        say(f"Backups of this device go to {backup.folder}; the newest {backup.keep} stay.")
        say(
            f"While the background service runs (`crystal agent status`) it makes one every {backup.every_hours} hours,"
        )
        say("and on waking if one was missed. `crystal backup` makes one now.")


def _document(done: BackedUp) -> dict[str, object]:
    manifest = done.manifest
    return {
        "folder": str(done.folder),
        "number": manifest.number,
        "files": len(manifest.items),
        "bytes": manifest.bytes,
        "seconds": round(done.seconds, 3),
        "epoch": manifest.epoch,
        "seq": manifest.sequence,
        "digest": manifest.digest or None,
        "unsent": manifest.unsent,
        "keys": manifest.keys.value,
        "left_out": [{"path": each.path, "why": each.why} for each in manifest.left_out],
        "deleted": [str(path) for path in done.gone],
        "spared": [str(path) for path in done.spared],
    }


def _backup_document(each: FoundBackup) -> dict[str, object]:
    manifest = each.manifest
    if manifest is None:
        return {"folder": str(each.folder), "fault": each.fault}
    return {
        "folder": str(each.folder),
        "vault": manifest.vault,
        "device": manifest.device,
        "made_at": iso(manifest.made_ms),
        "files": len(manifest.items),
        "bytes": manifest.bytes,
        "keys": manifest.keys.value,
        "epoch": manifest.epoch,
        "seq": manifest.sequence,
    }


def _line(each: FoundBackup) -> str:
    manifest = each.manifest
    if manifest is None:
        return f"{each.folder.name}  ! {each.fault}"
    keys = "" if manifest.keys is Keys.NONE else "  with keys"
    made = iso(manifest.made_ms) or "at an unknown time"
    files = counted(len(manifest.items), "file")
    return f"{each.folder.name}  device {manifest.device[:8]}  {made}  {files}  {size(manifest.bytes)}{keys}"
