"""Read-only inspection of a `crystal.db` that must not be changed, such as a copy in a backup.

The file is opened as immutable: SQLite takes no lock and creates no file beside it. A schema of another version is not
readable without a migration.
"""

from pathlib import Path

import apsw

from crystal_core.database import Database, load_vectors, translated
from crystal_core.errors import ForeignFile, SchemaTooNew, VaultDamaged
from crystal_core.replica import ReplicaReader
from crystal_core.schema import APPLICATION_ID, MIGRATIONS
from crystal_core.sqlite_file import MEMORY, open_read_only
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.types import Position, StateDigest


def open_unchanging(path: Path) -> apsw.Connection:
    """Open a database as immutable, with sqlite-vec loaded. Raises apsw's errors."""
    connection = open_read_only(path, immutable=True)
    try:
        load_vectors(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def has_schema_of_now(path: Path) -> bool:
    """Whether the database has the current schema. Raises VaultDamaged, ForeignFile or SchemaTooNew if it can never be read."""
    try:
        connection = open_unchanging(path)
        try:
            application, version = (
                int(connection.execute(f"PRAGMA {name}").get) for name in ("application_id", "user_version")
            )
        finally:
            connection.close()
    except apsw.Error as error:
        raise translated(error, str(path)) from error
    if application != APPLICATION_ID:
        raise ForeignFile(f"{path} is no Crystal memory")
    if version > len(MIGRATIONS):
        raise SchemaTooNew(f"{path} has schema {version}; this program knows schemas up to {len(MIGRATIONS)}")
    return version == len(MIGRATIONS)


def check_state(path: Path, secret: VaultSecret) -> tuple[Position, StateDigest]:
    """Verify the rows against the state digest; return position and digest. Reads everything.

    Raises VaultDamaged if the digest does not match or the file cannot be read.
    """
    try:
        connection = open_unchanging(path)
    except apsw.Error as error:
        raise translated(error, str(path)) from error
    try:
        reader = ReplicaReader(Database(connection, str(path)), secret)
        kept = reader.digest()
        if reader.recompute_digest() != kept:
            raise VaultDamaged(f"{path}: its rows are not what its digest says")
        return reader.position(), kept
    finally:
        connection.close()


_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%'"


def strange_objects(database: Database) -> list[str]:
    """Return the names of schema objects that are extra, missing or different from a new database's.

    A file from another machine may contain triggers, views or columns that act on every later write and keep what is
    forgotten. Digests verify its rows only.
    """
    with Database.open(MEMORY) as fresh:
        wanted, found = set(fresh.rows(_OBJECTS)), set(database.rows(_OBJECTS))
    return sorted({str(row[1]) for row in wanted ^ found})


def foreign_tables(database: Database) -> list[str]:
    """Return the names of tables and views that are not of this schema. The tables that they consist of are left out."""
    objects = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
    with Database.open(MEMORY) as fresh:
        ours = {str(row[0]) for row in fresh.rows(objects)}
    others = sorted({str(row[0]) for row in database.rows(objects)} - ours)
    return [name for name in others if not any(name.startswith(f"{other}_") for other in others)]
