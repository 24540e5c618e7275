"""The codes that a person gives a new machine: an invite, whole or short, or the vault's offline code."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from crystal_crypto.invite_code import InviteCode, decode_invite
from crystal_crypto.pairing import OfflineCode, is_offline_code
from crystal_crypto.short_invite import decode_short_invite, is_short_invite
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import Settings
from crystal_node.device.registration import UnknownVault
from crystal_node.safekeeping.pairing.short_invite import fetch
from crystal_node.surfaces.cli.console.output import note
from crystal_node.surfaces.cli.console.prompts import SECRET_CHARS_MAX, read_code
from crystal_node.surfaces.cli.console.terminal import is_terminal

_HIDDEN = ("mc1:", "mc2:", "mc3:")


def ask_code() -> str:
    """Ask for a code of any kind. One that is typed by hand is seen, one that opens the vault is not."""
    return read_code("The code that the other machine shows: ", hidden=_HIDDEN)


def read_invite(settings: Settings, code: str, *, yes: bool) -> InviteCode:
    """The invite in its text, or at the relay that a short one names.

    Raises:
        BadCode: it was mistyped. UsageError: nobody can confirm here. PairingFailed, StoreFailure: as ``fetch``.
    """
    short = decode_short_invite(code) if is_short_invite(code) else None
    whole = decode_invite(code) if short is None else None
    someone_must_confirm(yes=yes)
    if short is not None:
        note(f"Looking for the invite at {short.url}.")
        whole = asyncio.run(fetch(settings, short))
    assert whole is not None, "a code is short or whole"
    return whole


def check_argument(code: str | None) -> None:
    """Refuse an offline code on the command line, which all users of the machine can see and the shell keeps.

    An invite is allowed, since it adds nobody without the digits.

    Raises:
        UsageError: it was an offline code.
    """
    if code is not None and not is_invite(code):
        raise UsageError(
            "an offline code (mc3) opens the whole vault, and is not taken from a command line: "
            "every user of this machine can read that, and your shell's history keeps it",
            hint="Use `--code -`, which asks for it, or `crystal pair --code-file FILE`; and clear your shell's history.",
        )


def is_invite(code: str) -> bool:
    """Whether to read the code as an invite. What is neither kind is, so that its error explains invites."""
    return not is_offline_code(code)


@contextmanager
def explain_old_code(code: OfflineCode) -> Generator[None]:
    """Say of a code that begins with ``mc1:``, and that the relay does not know, what it may be. Raises UnknownVault."""
    try:
        yield
    except UnknownVault as error:
        if code.old and error.hint == UnknownVault.hint:
            error.hint = (
                "A code that begins with mc1: is an earlier Crystal's, which may go on behind an @ (check that it is whole, "
                "and that it belongs to this relay), or the published prototype's. The prototype's is the key of its relay and "
                "opens no vault: `crystal takeover` brings its memory over, and `crystal bridge add` takes in what its devices "
                "drop."
            )
        raise


def someone_must_confirm(*, yes: bool) -> None:
    """Refuse, before the invite is used up, if nobody can confirm. Raises UsageError."""
    if not yes and not is_terminal():
        raise UsageError(
            "nobody can confirm the inviting machine here; the invite was not used",
            hint="Add --yes if the code came from a machine of your own.",
        )


def code_in(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(SECRET_CHARS_MAX).strip()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="Name the file that holds the code."
        ) from error
    if not text:
        raise UsageError(f"{path} is empty", hint="Name the file that holds the code.")
    return text
