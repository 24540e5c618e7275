"""The key store's passphrase, from the file that ``CRYSTAL_PASSPHRASE_FILE`` names or from a person at a terminal.

Never from arguments or the environment itself, which other processes can read. A file that others can read is refused. Without
file and terminal (services, hooks, pipes) an error names the fix. The passphrase is read into a bytearray, which the key store
wipes; one that is not ASCII is composed (NFC), so that all keyboards give the same bytes, and the copies of that step cannot be
wiped.
"""

import os
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from crystal_crypto.errors import PassphraseNeeded
from crystal_crypto.limits import PASSPHRASE_BYTES_MAX, PASSPHRASE_BYTES_MIN
from crystal_crypto.memory import wipe
from crystal_node.base.errors import BadConfig, UsageError
from crystal_node.base.home import Home

FILE_BYTES_MAX = PASSPHRASE_BYTES_MAX + 2
"""With the end of its line."""

_HOW = "Set CRYSTAL_PASSPHRASE_FILE to a file with the passphrase that only you can read, or run this at a terminal."


def ask_passphrase(home: Home) -> bytearray:
    """The passphrase of this home's key store. The caller wipes it.

    Raises:
        BadConfig: the file cannot be used.
        PassphraseNeeded: there is no file and no terminal.
    """
    if home.passphrase_file is not None:
        return read_passphrase_file(home.passphrase_file)
    if not has_terminal():
        raise PassphraseNeeded(
            "this device's keys are closed by a passphrase, and nobody can be asked for it here", hint=_HOW
        )
    return _typed("Passphrase of this device's keys: ")


def ask_new_passphrase(file: Path | None) -> bytearray:
    """A new passphrase, from a file or typed twice. The caller wipes it.

    Raises:
        BadConfig: the file cannot be used.
        UsageError: too short, too long, typed differently the second time, or no terminal.
    """
    if file is not None:
        return _long_enough(read_passphrase_file(file))
    if not has_terminal():
        raise UsageError(
            "nobody can be asked for the new passphrase here",
            hint="Put it into a file that only you can read, and add --new-file FILE.",
        )
    first = _long_enough(_typed("New passphrase: "))
    second = _typed("The same again: ")
    same = first == second
    wipe(second)
    if not same:
        wipe(first)
        raise UsageError("the two were not the same; nothing was changed", hint="Run the command again.")
    return first


def read_passphrase_file(path: Path) -> bytearray:
    """The file's line, without its end.

    Raises:
        BadConfig: the file is missing, no plain file, readable by others, empty, or too long.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadConfig(f"the passphrase file {path} cannot be read: {error.strerror}", hint=_HOW) from None
    try:
        _check_file(path, os.fstat(handle))
        buffer = bytearray(FILE_BYTES_MAX + 1)
        size = os.readv(handle, [buffer])
    except OSError as error:
        raise BadConfig(f"the passphrase file {path} cannot be read: {error.strerror}", hint=_HOW) from None
    finally:
        os.close(handle)
    return _one_line(buffer, size, f"the passphrase file {path}")


def has_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


def _check_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise BadConfig(f"the passphrase file {path} is not a plain file", hint=_HOW)
    if found.st_uid not in (os.geteuid(), 0):
        raise BadConfig(
            f"the passphrase file {path} belongs to another user", hint="Make one that belongs to you."
        )
    # systemd gives services credentials that belong to root and its group: nobody else can read those.
    others = 0o007 if found.st_uid == found.st_gid == 0 else 0o077
    if found.st_mode & others:
        raise BadConfig(
            f"the passphrase file {path} can be used by others than its owner",
            hint=f"Run `chmod 600 {path}`, and think about who has read it: `crystal keys passphrase` sets another.",
        )


def _typed(prompt: str) -> bytearray:
    """A line typed without echo."""
    buffer, size = bytearray(FILE_BYTES_MAX + 1), 0
    handle = sys.stdin.fileno()
    with _silent(handle):  # before the prompt: what is typed after it must be neither shown nor thrown away
        sys.stderr.write(prompt)
        sys.stderr.flush()
        while size < len(buffer):
            count = os.readv(handle, [memoryview(buffer)[size:]])
            size += count
            if not count or buffer[size - 1] == 0x0A:
                break
    sys.stderr.write("\n")
    if not size:
        raise UsageError("no passphrase was given", hint="Type it at the prompt.")
    return _one_line(buffer, size, "what was typed")


@contextmanager
def _silent(handle: int) -> Generator[None]:
    """Turns the terminal's echo off. The standard library's getpass returns str, which cannot be wiped."""
    import termios

    before = termios.tcgetattr(handle)
    silent = list(before)
    silent[3] &= ~termios.ECHO
    try:
        termios.tcsetattr(handle, termios.TCSAFLUSH, silent)
        yield
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def _one_line(buffer: bytearray, size: int, what: str) -> bytearray:
    """The line in the buffer. Wipes the buffer."""
    try:
        if size > FILE_BYTES_MAX:
            raise BadConfig(f"{what} is over {PASSPHRASE_BYTES_MAX} bytes", hint="Use a shorter passphrase.")
        end = size
        if end and buffer[end - 1] == 0x0A:
            end -= 1
            if end and buffer[end - 1] == 0x0D:
                end -= 1
        line = buffer[:end]
    finally:
        wipe(buffer)
    if not line or 0x0A in line:
        wipe(line)
        raise BadConfig(
            f"{what} is {'empty' if not line else 'more than one line'}", hint="The passphrase is one line."
        )
    return line if line.isascii() else _composed(line, what)


def _composed(line: bytearray, what: str) -> bytearray:
    from unicodedata import normalize

    try:
        return bytearray(normalize("NFC", line.decode("utf-8")).encode("utf-8"))
    except UnicodeDecodeError:
        raise BadConfig(f"{what} is not UTF-8", hint="Type the passphrase as text.") from None
    finally:
        wipe(line)


def _long_enough(passphrase: bytearray) -> bytearray:
    if not PASSPHRASE_BYTES_MIN <= len(passphrase) <= PASSPHRASE_BYTES_MAX:
        wipe(passphrase)
        raise UsageError(
            f"a passphrase has {PASSPHRASE_BYTES_MIN} to {PASSPHRASE_BYTES_MAX} bytes; nothing was changed",
            hint="Five or six words that a machine chose are good: it can be tried offline on a copied home.",
        )
    return passphrase
