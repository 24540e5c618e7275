"""Times as people type them for ``--since`` and ``--until``: an age, a date, or the words for one, as in a query.

What is a day, a week or the like begins where `since` says so, and ends where `until` does.
"""

from datetime import tzinfo

from crystal_node.base.errors import UsageError


def parse_since(text: str, now_ms: int, zone: tzinfo) -> int:
    """The beginning of the time meant, in milliseconds since 1970, at least 0. A date without a zone is in `zone`.

    Raises:
        Usage: no age, no date and no words for one.
    """
    return _range(text, now_ms, zone)[0]


def parse_until(text: str, now_ms: int, zone: tzinfo) -> int:
    """The last millisecond of the time meant: of a day its end, of an age or a time of day the moment itself. Raises Usage."""
    return _range(text, now_ms, zone)[1] - 1


def _range(text: str, now_ms: int, zone: tzinfo) -> tuple[int, int]:
    from crystal_core.search.dates import moment_range  # only what filters by time needs its words

    found = moment_range(text, now_ms, zone)
    if found is None:
        raise UsageError(
            f"{text[:60]!r} is no time that is understood, or one of two",
            hint="Use 24h, 7d, yesterday, last week, monday, in march, or a date such as 2026-01-31 or 2026-01-31T18:00.",
        )
    return found.start_ms, found.end_ms
