"""For those who must be told something and are of no interest to a test."""


def silent(*_: object) -> None:
    """Takes whatever is said."""
