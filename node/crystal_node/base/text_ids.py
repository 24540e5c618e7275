"""Ids of texts as people and agents read them.

A module apart from ``lookup``, which needs the database: showing an id needs none.

ID          a text
ID@PLACE    the text in one of the places where it stands (`search.places`)
"""

ID_DIGITS_MIN = 8
SHOWN_DIGITS = 12
"""Of an id that people and agents read."""
PLACE_DIGITS = 8
PLACE_SIGN = "@"
ID_DIGITS_MAX = 64
ID_CHARS_MAX = ID_DIGITS_MAX + len(PLACE_SIGN) + PLACE_DIGITS


def placed_id(content: str, place: str, digits: int = SHOWN_DIGITS) -> str:
    """An id as it is shown, with the place where there is one to name."""
    return content[:digits] + (f"{PLACE_SIGN}{place}" if place else "")
