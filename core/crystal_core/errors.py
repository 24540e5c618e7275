"""Errors of the memory's database, with hints for its owner.

A message names the file and the cause, never a text from the memory. SQLite's errors are translated in one place
(`database.translated`); an error left untranslated is a bug in this program and ends with exit code 1.
"""

from crystal_crypto.errors import CrystalError


class VaultDataError(CrystalError):
    """The memory's database cannot be used. Base class of this package's errors."""

    exit_code = 8
    hint = "See that the disk works and has room, then try again"


class VaultDamaged(VaultDataError):
    """The file is not a sound SQLite database."""

    hint = (
        "Run `crystal restore`: it sets the file aside and makes the memory anew from the relay; what this device had not "
        "sent yet is kept in its outbox"
    )


class ForeignFile(VaultDataError):
    """The file is a database, but not one of Crystal's."""

    hint = (
        "Check CRYSTAL_DATA_DIR: another program's file is where crystal.db is expected; it was not touched"
    )


class SchemaTooNew(VaultDataError):
    """The database was written by a newer version of Crystal."""

    hint = "Update Crystal on this device; the database was not touched"


class VaultFull(VaultDataError):
    """The disk or a quota is full. The change was rolled back."""

    hint = "Make room on the disk; nothing was lost, the work is repeated by itself"


class VaultBusy(VaultDataError):
    """Another process held the database for longer than the timeout."""

    exit_code = 9
    hint = "Another Crystal process is at work on this memory; try again in a moment"


class ForeignSecret(VaultDataError):
    """The database was written with the keys of another vault."""

    exit_code = 7
    hint = "This memory belongs to another vault: move crystal.db away, or use the home that it belongs to"


class DatabaseKeyMissing(VaultDataError):
    """The databases are encrypted, and their key is not in the key store."""

    exit_code = 7
    hint = (
        "Bring the key back: restore state/secrets, or the keyring, from a backup. Without it nothing in this home can be "
        "read: move the home away, then join again with `crystal pair --code -` or `crystal recovery restore`; all that was "
        "synced comes back"
    )


class NoCiphers(VaultDataError):
    """The installed apsw cannot read or write encrypted databases."""

    hint = (
        "Install the build that can, in Crystal's environment: pip uninstall apsw; "
        "pip install --force-reinstall apsw-sqlite3mc. Nothing was changed"
    )


class UnusableVectors(VaultDataError):
    """Vectors differ in size from those stored, or have values that are not finite. Nothing was stored."""

    hint = "The embedding model of the Core has changed: update Crystal on all devices"


class EmptyQuery(CrystalError):
    """There is nothing to search for."""

    exit_code = 2
    hint = 'Give some words: crystal search "what we decided about backups"'
