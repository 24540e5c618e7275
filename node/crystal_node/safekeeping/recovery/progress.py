"""How far a restore from another home has come: a small file beside the databases, there until all is done.

::

    (no file) --> COPYING, databases half in place --> COPIED, ours --> (no file)

In COPYING whatever lies in this home's databases came from the other home and is copied anew. From COPIED on, everything is
found again from the databases themselves; only what mending makes invisible is noted: that the relay had lost the vault, and
that the device whose home was copied was its Core.
"""

from enum import StrEnum

import msgspec

from crystal_node.base.errors import LocalStorage
from crystal_node.base.home import Home, write_private


class Phase(StrEnum):
    """What stands in this home's databases."""

    COPYING = "copying"
    COPIED = "copied"


class RestoreProgress(msgspec.Struct, frozen=True):
    """``source`` is the other home's folder, ``led`` the claim by which its device was the Core ("" if it was not), ``lost``
    whether the relay had lost the vault."""

    phase: Phase
    source: str
    led: str = ""
    lost: bool = False


def read_progress(home: Home) -> RestoreProgress | None:
    """What an interrupted restore left; None if there is none. Raises LocalStorage for a file that says nothing."""
    try:
        data = home.restore_file.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=RestoreProgress)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LocalStorage(
            f"{home.restore_file} is damaged",
            hint="Restore into another, empty home: CRYSTAL_HOME=~/.crystal-2.",
        ) from error


def write_progress(home: Home, progress: RestoreProgress) -> RestoreProgress:
    write_private(home.restore_file, msgspec.json.encode(progress))
    return progress


def end_progress(home: Home) -> None:
    home.restore_file.unlink(missing_ok=True)
