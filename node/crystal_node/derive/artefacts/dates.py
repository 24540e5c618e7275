"""Days and times in a person's time zone, of timestamps in milliseconds."""

from datetime import date, datetime, tzinfo

UNDATED = "undated"


def local_time(milliseconds: int, zone: tzinfo) -> datetime | None:
    """The local time; None if the timestamp is unknown (0) or out of range."""
    if milliseconds <= 0:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, zone)
    except (OverflowError, ValueError, OSError):
        return None


def day_of(milliseconds: int, zone: tzinfo) -> date | None:
    moment = local_time(milliseconds, zone)
    return None if moment is None else moment.date()


def span(first: int, last: int, zone: tzinfo) -> str:
    """ "2026-01-05 09:00 to 11:42", with the second day where it is another."""
    start, end = local_time(first, zone), local_time(last, zone)
    if start is None or end is None:
        return "at a time that nobody noted"
    if start.date() == end.date():
        return f"{start:%Y-%m-%d %H:%M} to {end:%H:%M}"
    return f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}"
