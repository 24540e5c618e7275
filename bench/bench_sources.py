"""Sources: a look at a large folder in which nothing changed, and how fast one is read for the first time.

The look is held against walking the same folder and asking for each file's size and times. The first reading is of Markdown and
code of the kind that people have, from the disk's cache into this device's own memory, ready to be found and to be sent.
"""

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import Row, timed, value_at_least, value_at_most
from crystal_core.cutting import PassageKind, cut
from crystal_core.sqlite_file import immediate
from crystal_node.base.settings import resolve
from crystal_node.derive.sources.database import SENT, KnownFile, SourceDatabase
from crystal_node.derive.sources.results import SourceSynced
from crystal_node.derive.sources.scan import SourceScan
from crystal_node.derive.sources.service import add_source, sync_sources
from crystal_node.device.device import Device, opened
from crystal_node.surfaces.demo.machines import DemoDevice, DemoRelay

FILES = 100_000
FIRST_FILES = 3_000
FILES_IN_FOLDER = 100
OLD = 1_600_000_000
_SENTENCE = "the relay keeps what nobody may read while each device finds it on its own disk and says so"


def run(quick: bool) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as place:
        folder = Path(place)
        with _founded(folder) as device:
            rows = [*_first(device, folder, files=300 if quick else FIRST_FILES)]
            rows += _unchanged(device, folder, files=5_000 if quick else FILES)
    return [*rows, _cutting(quick)]


@contextmanager
def _founded(folder: Path) -> Generator[Device]:
    """The device of a vault of its own, at a relay that is stopped by then."""
    relay = DemoRelay(folder / "relay")
    relay.start()
    try:
        core = DemoDevice(folder / "core")
        core.run("init", "--role", "core", "--relay", relay.url, "--yes", token=relay.token)
    finally:
        relay.stop()
    with opened(resolve(None, core.environment())) as device:
        yield device


def _first(device: Device, folder: Path, *, files: int) -> list[Row]:
    root = folder / "first"
    size = _written(root, files, _document)
    add_source(device, root, name="first")
    started = time.perf_counter()
    synced = _synced(device, "first")
    seconds = time.perf_counter() - started
    assert synced.new == files
    return [
        Row(
            name=f"first sync of {files:,} files, {size / 1e6:.0f} MB",
            value=files / seconds,
            unit="files/s",
            target=value_at_least(50.0),
            note=f"{synced.pieces:,} pieces, {synced.pieces / seconds:,.0f} a second",
        )
    ]


def _unchanged(device: Device, folder: Path, *, files: int) -> list[Row]:
    root = folder / "unchanged"
    root.mkdir()
    add_source(device, root, name="unchanged")
    _synced(device, "unchanged")  # of an empty folder: what was read by older rules is read again
    _written(root, files, lambda number: f"Number {number}.")
    _know_all(device, root)

    def look() -> None:
        synced = _synced(device, "unchanged")
        assert (synced.files, synced.new, synced.changed, synced.removed) == (files, 0, 0, 0)

    took = timed(look, repeat=5)
    walk = timed(lambda: _walked(root), repeat=5)
    return [
        Row(
            name=f"{files:,} unchanged files: a sync",
            value=took.median,
            unit="s",
            baseline="os.walk and stat",
            baseline_value=walk.median,
            target=value_at_most(5.0),
            note="with an ignore file of ten rules; opens no file",
        )
    ]


def _cutting(quick: bool) -> Row:
    text = "\n\n".join(_document(number) for number in range(50 if quick else 1000))
    took = timed(lambda: cut(text, PassageKind.MARKDOWN), repeat=3)
    return Row(
        name="cutting Markdown", value=len(text) / 1e6 / took.median, unit="MB/s", target=value_at_least(1.0)
    )


def _synced(device: Device, name: str) -> SourceSynced:
    return asyncio.run(sync_sources(device, name)).sources[0]


def _know_all(device: Device, root: Path) -> None:
    """As if the folder had been read and sent long ago: rows of the memory and of the sources' database."""
    version = bytes(32)
    with SourceDatabase.open(device.settings.home.sources_database) as book:
        files = list(SourceScan(root).files())
        book.note("unchanged", ((path, KnownFile(stamp, version, SENT, 1)) for path, stamp in files))
    with immediate(device.replica.database.connection):
        device.replica.database.connection.executemany(
            "INSERT INTO documents (source, path, version, kind, modified_at, total, came) VALUES (?, ?, ?, 'text', 0, 1, 1)",
            (("unchanged", path, version) for path, _ in files),
        )


def _written(root: Path, files: int, text: Callable[[int], str]) -> int:
    """Makes so many files. Returns their bytes."""
    root.mkdir(exist_ok=True)
    (root / ".gitignore").write_text(
        "\n".join(f"*.ign{number}" for number in range(8)) + "\nbuild/\n/out/*.txt\n"
    )
    size = 0
    for number in range(files):
        path = root / f"folder-{number // FILES_IN_FOLDER}" / f"file-{number}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text(number))
        os.utime(path, (OLD, OLD))
        size += path.stat().st_size
    return size


def _document(number: int) -> str:
    dice, known = random.Random(number), _SENTENCE.split()
    parts = [f"# Document {number}"]
    for section in range(dice.randrange(2, 12)):
        words = " ".join(
            dice.choice(known) + str(dice.randrange(100)) for _ in range(dice.randrange(30, 200))
        )
        parts.append(f"## Section {section}\n\n{words}.")
    return "\n\n".join(parts)


def _walked(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for name in names:
            (Path(folder) / name).lstat()
