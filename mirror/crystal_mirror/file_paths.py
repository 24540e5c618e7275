"""Paths of files that may travel: relative paths that mean the same file on Linux, macOS and Windows.

Refused is any path that is absolute, climbs, is not in Unicode's composed form (NFC), holds control characters or what
Windows reserves (names, characters, a dot or a space at the end of a component), or is too long. Two paths with equal
``folded`` forms are one file where case does not count, so the tree holds only one of them at a time. A device that finds
such a file on its own disk leaves it alone and reports it; nothing is renamed without the person knowing.
"""

import re
import unicodedata
from collections.abc import Iterator
from hashlib import sha256
from itertools import count

from crystal_crypto.errors import Malformed
from crystal_crypto.limits import DEVICE_BYTES
from crystal_mirror.types import Origin

PATH_BYTES_MAX = 1024
"""UTF-8 bytes of a whole path."""
COMPONENT_BYTES_MAX = 200
"""UTF-8 bytes of one component. File systems take 255; the rest is room for the mark of a conflict copy."""
DEPTH_MAX = 32
"""Components of a path."""
_NUMBER_MAX = 2**53
"""The highest sequence: of sixteen digits."""

_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f<>:"\\|?*]')
_RESERVED = re.compile(
    r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$|clock\$)(\..*)?", re.IGNORECASE
)


def fault_of(path: str) -> str | None:
    """Why this path may not travel, in words for a person; None if it may."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "its name is not Unicode text"
    if not path or size > PATH_BYTES_MAX:  # §10.2-4
        return f"its path is empty or longer than {PATH_BYTES_MAX} bytes"
    if path.startswith("/"):  # §10.2-4
        return "its path is absolute"
    if unicodedata.normalize("NFC", path) != path:  # §10.2-4
        return "its name is not in Unicode's composed form"
    components = path.split("/")
    if len(components) > DEPTH_MAX:  # §10.2-4
        return f"it lies deeper than {DEPTH_MAX} folders"
    for component in components:
        if component in ("", ".", ".."):  # §10.2-4
            return "its path climbs or has an empty component"
        if len(component.encode()) > COMPONENT_BYTES_MAX:  # §10.2-4
            return f"a component of its path is longer than {COMPONENT_BYTES_MAX} bytes"
        if _FORBIDDEN.search(component):  # §10.2-4
            return "its name holds a character that not every system allows"
        if component[-1] in ". ":  # §10.2-4
            return "its name ends with a dot or a space, which Windows drops"
        if _RESERVED.fullmatch(component):  # §10.2-4
            return "its name is one that Windows keeps for a device"
    return None


def check_path(path: str) -> None:
    """Raises Malformed for a path that may not travel."""
    fault = fault_of(path)
    if fault is not None:
        raise Malformed(f"a file cannot be synced: {fault}")


def folded(path: str) -> str:
    """The path as a file system sees it that ignores case and composition."""
    if path.isascii():  # the same composed and decomposed
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())  # §11.5-1


def conflict_path(path: str, device: bytes, number: int) -> str:
    """The path at which the second of two conflicting versions is kept, the same on every device. ``number`` is its
    operation's sequence.

    In the same folder, or in the nearest parent for which the path does not get too long.
    """
    folder, slash, name = path.rpartition("/")
    mark = f" (conflict {device.hex()[:8]}-{number})"  # §11.5-3
    marked = _marked(name, mark)
    while len(f"{folder}{slash}{marked}".encode()) > PATH_BYTES_MAX:  # §11.5-4
        folder, slash, _ = folder.rpartition("/")
    return f"{folder}{slash}{marked}"


def conflict_form(path: str) -> str:
    """What the first conflict paths of two paths differ by, whichever device and sequence they are of: the folded path with the
    longest mark that there is, for which most of a name is cut."""
    return folded(conflict_path(path, bytes(DEVICE_BYTES), _NUMBER_MAX))


def conflict_paths(path: str, version: Origin) -> Iterator[str]:
    """Paths at which the second version may be kept, best first and without end; it goes to the first that is free.

    First beside its path; then, for a file in place of a parent folder, with that folder marked; then at the root; then the
    same with other marks.
    """
    for attempt in count():
        device, number = version.device, version.sequence
        if attempt:
            device = sha256(
                # §11.5-3
                device + version.incarnation + number.to_bytes(8, "big") + attempt.to_bytes(4, "big")
            ).digest()
        yield conflict_path(path, device, number)  # §11.5-2
        above, slash, below = path.rpartition("/")
        while slash:
            candidate = f"{conflict_path(above, device, number)}/{below}"
            if len(candidate.encode()) <= PATH_BYTES_MAX:  # §11.5-2
                yield candidate
            above, slash, name = above.rpartition("/")
            below = f"{name}/{below}"
        yield conflict_path(path.rpartition("/")[2], device, number)


def _marked(name: str, mark: str) -> str:
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    room = COMPONENT_BYTES_MAX - len(mark.encode()) - len((dot + suffix).encode())
    if room < 1:
        stem, dot, suffix, room = name, "", "", COMPONENT_BYTES_MAX - len(mark.encode())
    stem = stem.encode()[:room].decode(errors="ignore").rstrip(". ") or "file"  # §11.5-4
    return f"{stem}{mark}{dot}{suffix}"
