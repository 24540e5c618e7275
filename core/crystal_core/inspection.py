"""Reading a `crystal.db` that nobody changes and that must not be changed: a copy in a backup.

SQLite is told that the file is immutable: it takes no lock and makes no file beside it, not even for an hour. A schema of
another version is refused, as it could only be read after a migration.
"""

from pathlib import Path

import apsw

from crystal_core.database import Database, load_vectors, translated
from crystal_core.errors import ForeignFile, SchemaTooNew, VaultDamaged
from crystal_core.replica import ReplicaReader
from crystal_core.schema import APPLICATION_ID, MIGRATIONS, vector_table
from crystal_core.sqlite_file import MEMORY, open_read_only
from crystal_core.state.vectors import dimensions
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.types import Position, StateDigest


def open_unchanging(path: Path) -> apsw.Connection:
    """Any database of ours, with what its virtual tables need. Errors are apsw's."""
    connection = open_read_only(path, immutable=True)
    try:
        load_vectors(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def has_schema_of_now(path: Path) -> bool:
    """Whether that memory can be read as it is. Raises VaultDamaged, ForeignFile or SchemaTooNew for one that never can."""
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
    """Where that memory stands, and its state digest, if its rows are what that says. Reads everything.

    Raises VaultDamaged if they are not, or if the file cannot be read.
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
    """The names of what is in the file's schema and should not be, is not and should be, or reads otherwise."""
    size = dimensions(database)
    with Database.open(MEMORY) as fresh:
        if size:
            fresh.run(vector_table(size))
        wanted, found = set(fresh.rows(_OBJECTS)), set(database.rows(_OBJECTS))
    return sorted({str(row[1]) for row in wanted ^ found})
