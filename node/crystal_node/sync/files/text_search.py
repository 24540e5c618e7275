"""Files of the home that contain a text literally, found by streaming: for what a forget cannot reach.

Crystal edits no file of a person. The trash is searched as well; only regular files are.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from crystal_mirror.files.ports import FileTrouble
from crystal_node.base.file_rules import TRASH_NAME
from crystal_node.device.device import Device
from crystal_node.sync.files.folders import READ, folder_of
from crystal_node.sync.files.rules import rules_of
from crystal_node.sync.files.scan import Scan
from crystal_node.sync.files.trash import Trash

BLOCK_BYTES = 1024 * 1024
_SESSIONS = "sessions/"


def files_with(device: Device, texts: Sequence[str]) -> list[str]:
    """The paths, relative to the home and in order, of files that contain one of the texts in UTF-8.

    Files excluded from sync on this device are not searched; those that cannot be read are skipped.
    """
    root = device.settings.home.root
    wanted = sorted({text.encode() for text in texts if text}, key=len)
    return [path for path in _paths(device, root) if wanted and _holds(root, path, wanted)]


def _paths(device: Device, root: Path) -> Iterator[str]:
    # What is here and held back from the sync is searched too.
    rules = replace(rules_of(device), allowed=None)
    # Copies of sessions are compressed, and a forget reaches them (derive.sessions).
    yield from (local.path for local in Scan(root, rules) if not local.path.startswith(_SESSIONS))
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
    """Whether the stream contains one of ``wanted``, which are ordered by length."""
    kept = len(wanted[-1]) - 1
    tail = b""
    for block in blocks:
        window = tail + block
        if any(text in window for text in wanted):
            return True
        tail = window[-kept:] if kept else b""
    return False
