"""The program as a service starts it: its command with absolute paths, and variables that are not secrets."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from crystal_crypto.errors import CrystalError
from crystal_node.base.settings import DEFAULT_HOME, Settings, SettingSource

DESCRIPTION = "Crystal: records and syncs the memory of AI agents"
STOP_SECONDS = 30
"""Time to end before the manager kills the process, which loses nothing."""
RESTART_SECONDS = 10
"""Pause before a restart after a crash."""


class Unwritable(CrystalError):
    """A path or a value that no service file can hold."""

    exit_code = 8
    hint = "Use a home whose path has no control characters."


@dataclass(frozen=True, slots=True)
class Program:
    """``mark`` tells services of several homes of one person apart; "" for the usual home."""

    command: tuple[str, ...]
    variables: dict[str, str] = field(repr=False)
    mark: str
    home: Path

    def named(self, base: str) -> str:
        """The service's name with the mark of its home."""
        return f"{base}-{self.mark}" if self.mark else base


def program_of(settings: Settings, *, interpreter: str = "") -> Program:
    """The background service of this home. Settings from environment variables are included: a service has none of them.

    Raises:
        Unwritable: a path holds control characters.
    """
    usual = Path(DEFAULT_HOME.replace("~", str(settings.person_home), 1))
    root = settings.home.root
    mark = "" if root == usual else sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    variables = {
        setting.variable: setting.value
        for setting in settings.shown()
        if setting.source is SettingSource.ENVIRONMENT
    }
    if mark:
        variables["CRYSTAL_HOME"] = str(root)
    # -P: nothing in the working folder is imported.
    command = (interpreter or sys.executable, "-P", "-m", "crystal_node", "agent", "run", "--quiet")
    _check((*command, *variables, *variables.values(), str(root)))
    return Program(command, dict(sorted(variables.items())), mark, root)


def _check(texts: Sequence[str]) -> None:
    for text in texts:
        if not text.isprintable():
            raise Unwritable(f"{text!r} holds characters that no service file can hold")
