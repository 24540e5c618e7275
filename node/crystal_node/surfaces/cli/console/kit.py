"""The recovery kit as an option: typed, piped or from a file, never as an argument."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from crystal_crypto.errors import BadCode
from crystal_crypto.hierarchy import Root
from crystal_crypto.kit import Kit, decode_kit, decode_line
from crystal_crypto.limits import KIT_LINES
from crystal_crypto.pairing import is_offline_code
from crystal_node.base.errors import UsageError, WrongCode
from crystal_node.surfaces.cli.console.output import note
from crystal_node.surfaces.cli.console.prompts import unseen
from crystal_node.surfaces.cli.console.terminal import is_terminal

KIT_BYTES_MAX = 64 * 1024
_STANDARD_INPUT = "-"

Compare = Callable[[int, bytes], bool]

KitFile = Annotated[
    str | None,
    typer.Option(
        "--kit",
        metavar="FILE",
        help="The recovery kit's text, for what needs the vault's root; - reads it from standard input or asks for it.",
    ),
]


def root_from_kit(kit: str, vault: bytes) -> Root:
    """The root of a kit for this vault.

    Raises:
        BadCode: the lines are no kit.
        WrongCode: it is another vault's.
        UsageError: there is nothing to read.
    """
    found = read_kit(kit)
    if found.vault != vault:
        raise WrongCode(
            f"that kit belongs to another vault ({found.vault.hex()[:8]}, this one is {vault.hex()[:8]})",
            hint="Use the kit of this vault; `crystal status` shows its id.",
        )
    return found.root


def read_kit(kit: str, compare: Compare | None = None) -> Kit:
    """Read a kit from a file, or for ``-`` from standard input, line by line on a terminal.

    ``compare`` says whether a well-typed line is the expected one; it is asked as each line is typed.
    """
    return decode_kit(_typed(compare) if kit == _STANDARD_INPUT else _from_file(Path(kit)))


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(KIT_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > KIT_BYTES_MAX:
        raise UsageError(f"{path} is too large to be a recovery kit")
    return data.decode("utf-8", "replace")


def _typed(compare: Compare | None) -> str:
    """On a terminal ask for each line, without echo, until it is right; else read all of standard input."""
    if not is_terminal():
        text = sys.stdin.read(KIT_BYTES_MAX) if sys.stdin is not None else ""
        if not text.strip():
            raise UsageError(
                "no recovery kit was given", hint="Pipe its lines, or name the file that it is in."
            )
        return text
    note("Type the recovery kit, line by line. Nothing is shown.")
    lines: list[str] = []
    with unseen() as ask_line:
        while len(lines) < KIT_LINES:
            number = len(lines) + 1
            line = ask_line(f"line {number} of {KIT_LINES}: ")
            if line is None:
                raise UsageError("no recovery kit was given")
            if not lines and is_offline_code(line):
                return line  # the kit's QR, read by a camera
            try:
                data = decode_line(number, line)
            except BadCode as error:
                note(f"  {error}. {error.hint}")
                continue
            if compare is not None and not compare(number, data):
                note(
                    f"  line {number} is well typed, and not that of this vault's kit: is it from another kit?"
                )
                continue
            note(f"  line {number} is right")
            lines.append(line)
    return "\n".join(lines)
