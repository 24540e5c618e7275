"""The absolute command by which other programs call Crystal, and how such a command is recognised.

It is the command installed beside the interpreter, if it is ours: the compiler of a programming language has the same name.
Otherwise the interpreter with ``-P``: hooks run in a project's folder, whose files must not be imported.
"""

import os
import shlex
import sys
from pathlib import Path

_NAME = "crystal"
_PACKAGE = "crystal_node"
_SCRIPT_BYTES_MAX = 4096


def program() -> tuple[str, ...]:
    """The words that start Crystal, whatever the working folder and the search path are."""
    beside = Path(sys.executable).absolute().with_name(_NAME)
    if os.access(beside, os.X_OK) and _starts_us(beside):
        return (str(beside),)
    return (str(Path(sys.executable).absolute()), "-P", "-m", _PACKAGE)


def words_after(command: str) -> list[str] | None:
    """What a shell command gives to Crystal; None if it runs something else, or cannot be read."""
    try:
        return arguments_after(shlex.split(command))
    except ValueError:
        return None


def arguments_after(words: list[str]) -> list[str] | None:
    """As ``words_after``, of a command that is in words already."""
    if not words:
        return None
    if Path(words[0]).name == _NAME:
        return words[1:]
    if _PACKAGE in words[1:] and words[words.index(_PACKAGE) - 1] == "-m":
        return words[words.index(_PACKAGE) + 1 :]
    return None


def _starts_us(script: Path) -> bool:
    try:
        with script.open("rb") as file:
            return _PACKAGE.encode() in file.read(_SCRIPT_BYTES_MAX)
    except OSError:
        return False
