"""The device's own errors, and the one place where any error becomes an exit code, a sentence and a hint.

Exit codes, the same for every command:

    0 done                     5 the relay refused the credentials      9 busy: another process holds the home
    1 unexpected: a bug        6 the relay misbehaves                  10 not found
    2 usage                    7 a wrong key, code or passphrase      130 interrupted
    3 not set up               8 local storage, or the key store          11 another device did not answer, or did not do it
    4 the relay is unreachable                                            12 the language model failed

Errors of the other packages carry ``exit_code`` and ``hint`` themselves; errors of the operating system and of SQLite are
described here. Any other error is a bug, exit code 1.
"""

import errno
from dataclasses import dataclass
from enum import IntEnum

from crystal_crypto.errors import CrystalError
from crystal_mirror.errors import Revoked

_STORAGE_ERRNOS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EIO,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
    }
)
_STORAGE_SQLITE = frozenset(
    {
        "FullError",
        "IOError",
        "CantOpenError",
        "ReadOnlyError",
        "PermissionsError",
        "FormatError",
        "NoLFSError",
    }
)
_DAMAGED_SQLITE = frozenset({"CorruptError", "NotADBError"})
_DAMAGED_HINT = (
    "`crystal doctor` says which one. Do not delete state.db: it may hold conversations that are nowhere else yet. Copy the "
    "home away, and restore state.db from a backup. What crystal.db holds comes again: move it away, with its -wal file, and "
    "run `crystal sync`."
)
_BUSY_SQLITE = frozenset({"BusyError", "LockedError", "ProtocolError"})


class ExitCode(IntEnum):
    """Exit codes of commands."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_SET_UP = 3
    RELAY_UNREACHABLE = 4
    RELAY_REFUSED = 5
    RELAY_MISBEHAVES = 6
    WRONG_KEY = 7
    STORAGE = 8
    BUSY = 9
    NOT_FOUND = 10
    NO_ANSWER = 11
    MODEL = 12
    INTERRUPTED = 130


class UsageError(CrystalError):
    """The command line makes no sense."""

    exit_code = ExitCode.USAGE
    hint = "Add --help to the command to see how it is used."


class NotSetUp(CrystalError):
    """There is no vault in this home yet."""

    exit_code = ExitCode.NOT_SET_UP
    hint = "Run `crystal up`: it makes this machine the Core of a new vault, or has it join one."


class BadConfig(CrystalError):
    """A setting cannot be used."""

    exit_code = ExitCode.NOT_SET_UP
    hint = "`crystal config` shows every setting and where it comes from."


class HomeBusy(CrystalError):
    """Another process holds the home."""

    exit_code = ExitCode.BUSY
    hint = "Wait for it to finish, or stop it; nothing was changed."


class LocalStorage(CrystalError):
    """This machine's disk failed, or a file of the home cannot be used."""

    exit_code = ExitCode.STORAGE
    hint = "Check free space and permissions of the Crystal home, then run the command again."


class NoSuchEntry(CrystalError):
    """What the command names is not here."""

    exit_code = ExitCode.NOT_FOUND
    hint = "`crystal search` shows the ids of what is here."


class MemoryDiffers(CrystalError):
    """The memory here is intact, but not what the Core says it is."""

    exit_code = ExitCode.RELAY_MISBEHAVES
    hint = "Run `crystal sync`: it replays the log. `crystal status` shows what was noticed."


class NoAnswer(CrystalError):
    """Another device did not answer a command in time."""

    exit_code = ExitCode.NO_ANSWER
    hint = "Wake it, or run `crystal sync` on it."


class CommandFailed(CrystalError):
    """Another device did not do what it was asked."""

    exit_code = ExitCode.NO_ANSWER
    hint = "`crystal commands list` shows what was asked and how it ended."


class RelayLacks(CrystalError):
    """The relay lacks, or shows differently, something that this vault depends on."""

    exit_code = ExitCode.RELAY_MISBEHAVES
    hint = "`crystal repair` puts back what this machine has; run it on the Core first, then where the files are."


class WrongCode(CrystalError):
    """A pairing code is malformed, or another vault's."""

    exit_code = ExitCode.WRONG_KEY
    hint = "Show the code again with `crystal pair --offline` on the Core and copy all of it."


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it is shown: a sentence, what to do about it, and the exit code."""

    message: str
    hint: str
    exit_code: int


def passes(error: BaseException) -> bool:
    """Whether an error has a known cause that may go away, or be fixed, while the program runs."""
    known = isinstance(error, Exception) and describe(error).exit_code != ExitCode.UNEXPECTED
    return known and not isinstance(error, Revoked)


def describe(error: BaseException) -> Failure:
    """Describes any error. Never raises."""
    if isinstance(error, KeyboardInterrupt):
        return Failure(
            "interrupted", "Nothing that was accepted is lost; run the command again.", ExitCode.INTERRUPTED
        )
    code = getattr(error, "exit_code", None)
    hint = getattr(error, "hint", None)
    if isinstance(code, int) and isinstance(hint, str):
        return Failure(str(error) or type(error).__name__, hint, int(code))
    name = type(error).__name__
    if type(error).__module__.split(".", 1)[0] == "apsw":
        if name in _DAMAGED_SQLITE:
            return Failure(f"a database of this home is damaged: {error}", _DAMAGED_HINT, ExitCode.STORAGE)
        if name == "FullError":
            return Failure(f"the disk is full: {error}", LocalStorage.hint, ExitCode.STORAGE)
        if name in _STORAGE_SQLITE:
            return Failure(f"the database cannot be used: {error}", LocalStorage.hint, ExitCode.STORAGE)
        if name in _BUSY_SQLITE:
            return Failure(f"the database is in use: {error}", HomeBusy.hint, ExitCode.BUSY)
    if isinstance(error, OSError) and error.errno in _STORAGE_ERRNOS:
        where = f": {error.filename}" if error.filename else ""
        return Failure(f"{error.strerror or name}{where}", LocalStorage.hint, ExitCode.STORAGE)
    return Failure(
        f"{name}: {error}" if str(error) else name,
        "This is a bug in Crystal. Run the command again with --debug for the trace, and report it.",
        ExitCode.UNEXPECTED,
    )
