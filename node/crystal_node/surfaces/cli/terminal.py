"""The terminal for tables: rich, without reading markup or emoji codes into foreign text."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console() -> "Console":
    """A console on standard output. Loading it takes a moment, so only what prints a table does."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, soft_wrap=False)
