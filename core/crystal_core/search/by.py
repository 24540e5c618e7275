"""What a search finds. Apart from the search itself, so that whoever asks for one loads no database."""

from enum import StrEnum


class By(StrEnum):
    """What a search finds: whole turns, or single messages."""

    TURN = "turn"
    MESSAGE = "message"
