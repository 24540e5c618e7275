"""Whether a database file has the schema that this version makes, and nothing beside it.

A file from another machine may hold triggers, views or columns of somebody's making, which would act on every later write: keep
what is forgotten, for one. Its rows can be checked against digests; its schema is compared word for word.
"""

from crystal_core.database import Database
from crystal_core.schema import vector_table
from crystal_core.sqlite_file import MEMORY
from crystal_core.vectors import dimensions

_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%'"


def strange_objects(database: Database) -> list[str]:
    """The names of what is in the file's schema and should not be, is not and should be, or reads otherwise."""
    size = dimensions(database)
    with Database.open(MEMORY) as fresh:
        if size:
            fresh.run(vector_table(size))
        wanted, found = set(fresh.rows(_OBJECTS)), set(database.rows(_OBJECTS))
    return sorted({str(row[1]) for row in wanted ^ found})
