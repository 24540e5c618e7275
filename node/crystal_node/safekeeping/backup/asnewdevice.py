"""Bringing a backup back with the recovery kit, as a new device of the vault: where its keys are lost, or where the device
that it is of may still be in use.

::

    empty --backup read back whole--> backup-restore.json written --files copied--> files here, halted
      --crystal_node.safekeeping.recovery restores from the backup's databases--> a new device of the vault, synced
      --what is known of the files made this device's--> files synced from the next round on --> done

The files lie there first, with what was known of them, and without the home's marker: so the first round leaves them alone, and
the ones after it take up where the backup's device stood. What that one had not sent comes along under its old names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crystal_crypto.kit import Kit
from crystal_node.base.settings import Settings, read_config
from crystal_node.device.device import opened
from crystal_node.device.kit.standing import WrongKit
from crystal_node.safekeeping.backup.databases import FILES, WEAVER, WORKS, database_paths
from crystal_node.safekeeping.backup.keys import SECRETS
from crystal_node.safekeeping.backup.manifest import HOME_NAME, BackupManifest
from crystal_node.safekeeping.backup.meter import Tell
from crystal_node.safekeeping.backup.placing import begin, checked, end, fill, read_progress
from crystal_node.safekeeping.backup.tree import CONFIG
from crystal_node.safekeeping.recovery.outcome import Core, Restored
from crystal_node.safekeeping.recovery.restoring import restore
from crystal_node.sync.files.comeback import adopt_files

KEPT = frozenset({FILES, WORKS, WEAVER})
"""Databases that say something of the files beside them, whichever device they are on."""


@dataclass(frozen=True, slots=True)
class RestoredAnew:
    """What the restore from the databases came to, and the backup."""

    restored: Restored
    manifest: BackupManifest


def relay_of(folder: Path) -> str:
    """The relay that the backup's device used; "" if it had none."""
    return read_config(folder.expanduser() / HOME_NAME / CONFIG).relay_url


async def restore_as_new(
    settings: Settings,
    folder: Path,
    kit: Kit,
    *,
    enrolment_token: str = "",
    lead: bool = False,
    wants_lead: Callable[[Core], bool] = lambda _: False,
    tell: Tell | None = None,
) -> RestoredAnew:
    """Brings it back in this home. ``folder`` is absolute; the other arguments are those of
    ``crystal_node.safekeeping.recovery.restoring.restore``, whose errors are raised, too.

    Raises:
        LocalStorage, BackupDamaged: it is no backup, or not as it was written; nothing was changed.
        WrongKit: the kit is another vault's; nothing was changed.
        Usage: this home holds something; nothing was changed.
    """
    home = settings.home
    manifest = checked(home, folder, tell)
    if kit.vault.hex() != manifest.vault:
        raise WrongKit("that kit belongs to another vault than the backup")
    if read_progress(home) is None or not home.config_file.exists():
        begin(home, folder, manifest, with_keys=False, anew=True)
        own = database_paths(home).keys() - KEPT
        fill(home, folder, manifest, lambda path: _is_wanted(path, own), tell)
    restored = await restore(
        settings,
        kit,
        source=folder / HOME_NAME,
        enrolment_token=enrolment_token,
        lead=lead,
        wants_lead=wants_lead,
        with_files=False,
    )
    with opened(restored.settings) as device:
        adopt_files(device, {item.path for item in manifest.items}, relay_lost=restored.relay_lost)
    end(home)
    return RestoredAnew(restored, manifest)


def _is_wanted(path: str, own: set[str]) -> bool:
    return path not in own and path != CONFIG and not path.startswith(f"{SECRETS}/")
