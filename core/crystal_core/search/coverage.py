"""Estimate of how much of the memory has vectors, for a note on a search.

To be cheap it samples a few chunks, spread evenly over all that may have none. Up to `index_state.embedded` only chunks that
were passed over are without vectors, so a completely embedded memory takes one lookup.
"""

from crystal_core.database import Database

COVERAGE_LOOKED_AT = 64


def percent_embedded(database: Database) -> int:
    """Return the approximate percentage of replicated chunks with vectors; 100 only if the sample has no chunk without."""
    found = database.row("SELECT embedded, (SELECT max(rowid) FROM chunks) FROM index_state")
    if found is None or found[1] is None or found[0] >= found[1]:
        return 100
    first, last = int(found[0]) + 1, int(found[1])
    step = max((last - first + 1) // COVERAGE_LOOKED_AT, 1)
    looked = lacking = 0
    for rowid in range(first, last + 1, step):
        row = database.row(
            "SELECT EXISTS (SELECT 1 FROM windows WHERE chunk = chunks.rowid)"
            " OR EXISTS (SELECT 1 FROM actions WHERE chunk = chunks.rowid) FROM chunks"
            " WHERE rowid >= ? AND provisional = 0 ORDER BY rowid LIMIT 1",
            (rowid,),
        )
        if row is not None:
            looked, lacking = looked + 1, lacking + (not row[0])
    if not lacking:
        return 100
    without = lacking * (last - first + 1) // looked
    return min(max(100 - without * 100 // last, 0), 99)
