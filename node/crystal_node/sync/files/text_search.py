"""Files of the home that hold a text literally, found by streaming: for what a forget cannot reach.

A file is a person's own, and Crystal edits none. The trash is looked through as well; what is no regular file is not.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from crystal_mirror.files.ports import FileTrouble
from crystal_node.base.file_rules import TRASH_NAME
from crystal_node.device.device import Device
from crystal_node.sync.files.folders import READ, folder_of
from crystal_node.sync.files.rounds import rules_of
from crystal_node.sync.files.scan import Scan
from crystal_node.sync.files.trash import Trash

BLOCK_BYTES = 1024 * 1024


def files_with(device: Device, texts: Sequence[str]) -> list[str]:
    """The paths, relative to the home and in order, of the files that hold one of the texts, as UTF-8.

    What is excluded from sync on this device is not looked into. What cannot be read is passed over.
    """
    root = device.settings.home.root
    wanted = sorted({text.encode() for text in texts if text}, key=len)
    return [path for path in _paths(device, root) if wanted and _holds(root, path, wanted)]


def _paths(device: Device, root: Path) -> Iterator[str]:
    yield from (local.path for local in Scan(root, rules_of(device)))
    yield from (f"{TRASH_NAME}/{item.id}/{item.file.name}" for item in Trash(root).items())


def _holds(root: Path, path: str, wanted: Sequence[bytes]) -> bool:
    try:
        with folder_of(root, path) as found:
            if found is None:
                return False
            descriptor = os.open(found[1], READ, dir_fd=found[0])
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                return _found_in(iter(lambda: file.read(BLOCK_BYTES), b""), wanted)
    except (OSError, FileTrouble):
        return False


def _found_in(blocks: Iterable[bytes], wanted: Sequence[bytes]) -> bool:
    """Whether one of them is in the stream; ``wanted`` from the shortest to the longest."""
    kept = len(wanted[-1]) - 1
    tail = b""
    for block in blocks:
        window = tail + block
        if any(text in window for text in wanted):
            return True
        tail = window[-kept:] if kept else b""
    return False
