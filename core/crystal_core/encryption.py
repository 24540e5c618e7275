"""Databases that are encrypted at rest: which folders hold such, and how their files are opened.

A folder whose databases are encrypted holds a marker, which names the key and holds none. It is read at every opening, so
that a process that runs for weeks follows a change. ::

    no marker --encrypt--> ENCRYPTING --every file is encrypted--> ENCRYPTED
       ^                       |  ^                                   |
       |                    decrypt  encrypt                       decrypt
       |                       v  |                                   |
       +--every file is plain-- DECRYPTING <--------------------------+

    ENCRYPTED --rekey--> REKEYING --every file has the new key--> ENCRYPTED

Rules:

- In ENCRYPTING and DECRYPTING a file may have either form, and both are read. In the other two a plain file is refused.
- In REKEYING a file may have the new key or the former one, and both are read.
- A new file has the form that the marker leads to.
- Pages, the write-ahead log and rollback journals are encrypted by SQLite3 Multiple Ciphers with AEGIS-256
  (draft-irtf-cfrg-aegis-aead), which authenticates each page; each one written has a random nonce. The key is used as it is: no
  password is stretched.
- Temporary tables and indexes stay in memory: that build of SQLite never puts them into files.

Nothing here knows where keys are kept: the composition root says how they are found (`key_finder`).
"""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import apsw
import msgspec

from crystal_core import key_finder
from crystal_core.errors import NoCiphers, VaultDataError
from crystal_crypto.errors import UNDECODABLE

KEY_BYTES = 32
MARKER_NAME = ".db-encryption"
MARKER_BYTES_MAX = 1024
PLAIN_BEGINNING = b"SQLite format 3\x00"
_CIPHER = "aegis"
_KEY_ID = b"crystal/v2/database/key-id\x00"
_DEFAULT_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


class EncryptionState(StrEnum):
    """Of the databases in a folder with a marker; see the drawing above."""

    ENCRYPTING = "encrypting"
    ENCRYPTED = "encrypted"
    DECRYPTING = "decrypting"
    REKEYING = "rekeying"


class Marker(msgspec.Struct, frozen=True):
    """Content of the marker. ``key``: id of the key, by `key_id`; ``former``: of the one before it, in REKEYING."""

    state: EncryptionState
    key: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]
    version: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    former: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{32})?$")] = ""

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


_decoder = msgspec.json.Decoder(Marker)


def key_id(key: bytes) -> str:
    """Names a key without telling anything of it: 32 hexadecimal digits."""
    import hmac  # lazy: OpenSSL takes 3 ms to load, and most files are opened without a key
    from hashlib import sha256

    return hmac.new(key, _KEY_ID, sha256).hexdigest()[:32]


def read_marker(folder: Path) -> Marker | None:
    """Return the marker of a folder; None where databases are plain. Raises VaultDataError if it is damaged."""
    path = os.path.join(folder, MARKER_NAME)  # noqa: PTH118  at every opening: pathlib takes five times as long
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return _decoder.decode(file.read(MARKER_BYTES_MAX))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise VaultDataError(f"{path} cannot be read: {error.strerror}") from error
    except UNDECODABLE as error:
        raise VaultDataError(
            f"{path} is damaged: {error}",
            hint="Restore this small file from a backup, or from its twin: state/ and memory/ hold the same",
        ) from error


def check_ciphers() -> None:
    """Raise NoCiphers if the installed apsw cannot encrypt."""
    if not hasattr(apsw, "mc_version"):
        raise NoCiphers("the installed apsw has no ciphers: it is not the build that Crystal needs for this")


def connect(
    path: Path | str,
    *,
    filename: str = "",
    flags: int = _DEFAULT_FLAGS,
    busy_milliseconds: int = 0,
) -> apsw.Connection:
    """Open the file at `path`, with its folder's key if the folder is encrypted.

    `filename` is its URI, where `flags` ask for one. Raises DatabaseKeyMissing, NoCiphers, VaultDataError and apsw's errors.
    """
    marker = read_marker(Path(path).parent)
    connection = _opened(filename or str(path), flags, busy_milliseconds)
    if marker is None:
        return connection
    try:
        if marker.state is EncryptionState.REKEYING:
            give_key(connection, _present_key(Path(path), marker))
            return connection
        changing = marker.state is not EncryptionState.ENCRYPTED
        if changing and _is_new(path):
            if marker.state is EncryptionState.ENCRYPTING:
                give_key(connection, find_key(Path(path).parent, marker))
            return connection
        give_key(connection, find_key(Path(path).parent, marker))
        if not changing or _is_read(connection):
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return _opened(filename or str(path), flags, busy_milliseconds)


def find_key(folder: Path, marker: Marker) -> bytes:
    """Return the key that a marker names. Raises DatabaseKeyMissing, NoCiphers."""
    check_ciphers()
    return key_finder.find(folder, marker.key)


def give_key(connection: apsw.Connection, key: bytes) -> None:
    """Make all pages of this connection's database encrypted. Called before the first read."""
    check_ciphers()
    assert len(key) == KEY_BYTES
    for statement in (f"PRAGMA cipher = '{_CIPHER}'", f"PRAGMA key = 'raw:{key.hex()}'"):
        list(connection.execute(statement))


def has_key(path: Path, key: bytes) -> bool:
    """Whether a file is encrypted with this key, as far as its first page tells. Takes no lock, and changes nothing."""
    connection = apsw.Connection(
        _uri(path) + "?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    try:
        give_key(connection, key)
        return _is_read(connection)
    finally:
        connection.close()


def copy_uri(target: Path, key: bytes | None) -> str:
    """The name by which `VACUUM INTO` writes an encrypted copy, or without `key` a plain one.

    The connection must have been opened with `SQLITE_OPEN_URI`.
    """
    secret = f"cipher={_CIPHER}&key=raw%3A{key.hex()}" if key else "key="
    return f"{_uri(target)}?{secret}"


def _uri(path: Path) -> str:
    from urllib.parse import quote

    return f"file:{quote(os.fsencode(path.absolute()))}"


def _present_key(path: Path, marker: Marker) -> bytes:
    """The key that a file has while keys are changed; for a new file, the new key."""
    key = find_key(path.parent, marker)
    return key if _is_new(path) or has_key(path, key) else key_finder.find(path.parent, marker.former)


def _opened(name: str, flags: int, busy_milliseconds: int) -> apsw.Connection:
    connection = apsw.Connection(name, flags=flags)
    if busy_milliseconds:
        connection.set_busy_timeout(busy_milliseconds)
    return connection


def _is_new(path: Path | str) -> bool:
    try:
        return os.stat(path).st_size == 0  # noqa: PTH116
    except OSError:
        return True


def _is_read(connection: apsw.Connection) -> bool:
    """Whether the key fits, as far as the first page tells."""
    try:
        list(connection.execute("PRAGMA schema_version"))
    except apsw.NotADBError:
        return False
    return True
