"""What a search finds. A module apart from the search itself, so that a caller that asks for a search loads no database."""

from enum import StrEnum


class By(StrEnum):
    """What a search finds: whole turns, or single messages."""

    TURN = "turn"
    MESSAGE = "message"
