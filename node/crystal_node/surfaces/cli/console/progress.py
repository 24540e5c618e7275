"""Progress of a long command on standard error, with rate and time left: a bar on a terminal, lines elsewhere."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from crystal_node.surfaces.cli.console.output import note
from crystal_node.surfaces.cli.console.terminal import can_move
from crystal_node.sync.progress import ProgressLines

Progress = Callable[[str, int, int], None]
"""Called with the name of the step, the amount done and the total."""


@contextmanager
def progress_shown(unit: str = "", *, quiet: bool = False) -> Generator[Progress]:
    """A function that shows progress. `unit`: what is counted, such as "files"; "" for bytes. `quiet`: it shows nothing."""
    if quiet:
        yield lambda _what, _done, _total: None
    elif sys.stderr.isatty() and can_move():
        with _bar(unit) as progress:
            yield progress
    else:
        yield ProgressLines(note, unit=unit)


@contextmanager
def _bar(unit: str) -> Generator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar
    from rich.text import Text

    class Rate(ProgressColumn):
        """Of counted things; bytes have a column of their own."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{speed:,.0f} {unit}/s" if speed else "")

    amounts = (MofNCompleteColumn(), Rate()) if unit else (DownloadColumn(), TransferSpeedColumn())
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *amounts, TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        yield progress
