"""The marker of a home: names vault and device, and is checked before any file is touched.

::

    marker     files known here   verdict
    ---------  -----------------  ------------------------------------------------------------------
    ours       any                sync
    none       none               the first time: the marker is written
    none       some               halt: another folder, or an empty one, stands where the home was
    another's  any                halt: the home of another vault or device (a copy, a restored backup)

A halted home deletes nothing anywhere. ``crystal files adopt`` makes it this device's after a person has looked: what is known
of its files is forgotten, so that files that differ are kept on both sides.
"""

import os
from pathlib import Path

import msgspec

from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.decoding import from_json
from crystal_node.base.file_rules import MARKER_NAME
from crystal_node.base.home import write_private

MARKER_BYTES_MAX = 1024


class Marker(msgspec.Struct, frozen=True):
    """The marker's content, in hexadecimal digits."""

    vault: str
    device: str


def read_marker(root: Path) -> Marker | None:
    """None if there is no marker; an empty one if it cannot be read."""
    try:
        descriptor = os.open(root / MARKER_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return Marker("", "")
    with os.fdopen(descriptor, "rb") as file:
        try:
            return from_json(file.read(MARKER_BYTES_MAX), Marker)
        except (OSError, *UNDECODABLE):
            return Marker("", "")


def write_marker(root: Path, marker: Marker) -> None:
    write_private(root / MARKER_NAME, msgspec.json.encode(marker) + b"\n")


def verdict(found: Marker | None, wanted: Marker, *, known: bool) -> str:
    """Why files are not synced, "" if they are."""
    if found == wanted:
        return ""
    if found is None:
        return (
            "the home's root marker is missing, so this may not be the folder that was synced"
            if known
            else ""
        )
    if found.vault != wanted.vault:
        return "the home's root marker is another vault's"
    return "the home's root marker is another device's: this is a copy of its home, or a backup of it"
