"""Secrets in files, plain or wrapped under a passphrase (`passphrase` has the format and draws the states).

Rules: a store without a header holds plain files, a sealed one wrapped files only; a file of the other kind is refused and
named. Everything is checked again under the directory's lock before a write, so that a process that opened the store before
a passphrase was set cannot put a plain secret into it. A change of passphrase may die anywhere: the header decides, it is
replaced as a whole, and each file tells which key it needs.

The master key is held until `close`; `load` returns bytes, which cannot be wiped.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from crystal_crypto.errors import KeyStoreError, Malformed, PassphraseNeeded, UnknownVersion
from crystal_crypto.keystore.folder import HEADER_FILE, NOT_OURS_HINT, LockedFolder, SecretFolder
from crystal_crypto.keystore.passphrase import (
    COST,
    Cost,
    MasterKeys,
    PassphraseHeader,
    Random,
    SealState,
    is_wrapped,
    new_header,
)
from crystal_crypto.keystore.port import check_name, check_secret
from crystal_crypto.limits import PASSPHRASE_BYTES_MAX, PASSPHRASE_BYTES_MIN, SECRET_BYTES_MAX
from crystal_crypto.memory import wiped

AskPassphrase = Callable[[], bytearray]
"""Returns the passphrase, which the caller wipes. Raises PassphraseNeeded if there is nobody to ask."""

_READS_MAX: Final = 5
"""How often a file is read again because the header changed meanwhile."""


def nobody_to_ask() -> bytearray:
    """For programs without a source for a passphrase."""
    raise PassphraseNeeded("the keys are closed by a passphrase")


class FileKeyStore:
    """One file of mode 0600 for each secret, in a directory of mode 0700 that is made on the first write."""

    def __init__(
        self, directory: Path, passphrase: AskPassphrase = nobody_to_ask, random: Random = os.urandom
    ) -> None:
        self._folder = SecretFolder(directory)
        self._ask = passphrase
        self._random = random
        self._opened: tuple[bytes, MasterKeys] | None = None

    def load(self, name: str) -> bytes | None:
        check_name(name)
        for _ in range(_READS_MAX):
            header = self._folder.read(HEADER_FILE)
            data = self._folder.read(name)
            if self._folder.read(HEADER_FILE) == header:
                return None if data is None else self._plain(name, data, header)
        raise KeyStoreError(
            f"{self._folder.path} is being changed all the time", hint="Run the command again"
        )

    def store(self, name: str, secret: bytes) -> None:
        check_name(name)
        check_secret(secret)
        if (header := self._folder.read(HEADER_FILE)) is not None:
            self._keys(header)  # the slow part, before others have to wait
        with self._folder.locked() as folder:
            header = self._folder.read(HEADER_FILE)
            data = secret if header is None else self._as_kept(name, secret, header)
            folder.write(name, data)

    def delete(self, name: str) -> None:
        check_name(name)
        if self._folder.path.exists():
            with self._folder.locked() as folder:
                folder.delete(name)

    def close(self) -> None:
        """Wipes the master key. The next call asks for the passphrase again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[1].wipe()

    def passphrase_state(self) -> SealState | None:
        """How far a passphrase was set; None without one. Does not ask for it."""
        header = self._folder.read(HEADER_FILE)
        return None if header is None else self._parsed(header).state

    def check_passphrase(self) -> None:
        """Asks for the passphrase, if there is one, and tries it. Raises WrongPassphrase, PassphraseNeeded."""
        header = self._folder.read(HEADER_FILE)
        if header is not None:
            self._keys(header)

    def names(self) -> list[str]:
        """The names of the stored secrets."""
        return self._folder.names()

    def set_passphrase(self, new: bytearray, cost: Cost = COST) -> None:
        """Sets the passphrase, which replaces an earlier one; the files get a new master key.

        After a kill at any point the old or the new passphrase opens the store, and no secret is lost. `finish`, or calling
        this again, rewrites the rest.

        Raises PassphraseNeeded, WrongPassphrase if there is an earlier one that cannot be given, ValueError for a length
        out of bounds.
        """
        if not PASSPHRASE_BYTES_MIN <= len(new) <= PASSPHRASE_BYTES_MAX:
            raise ValueError(
                f"a new passphrase must be {PASSPHRASE_BYTES_MIN} to {PASSPHRASE_BYTES_MAX} bytes"
            )
        self.finish()
        if (before := self._folder.read(HEADER_FILE)) is not None:
            self._keys(before)  # asked for and derived before others have to wait
        with self._folder.locked() as folder:
            before = self._folder.read(HEADER_FILE)
            if before is None:
                keys = MasterKeys.generate(self._random)
            else:
                self._refuse_unfinished(before)
                keys = self._keys(before).renewed(self._random)  # §18.2-7
            header, kek = new_header(new, keys, cost, self._random)  # §18.2-7
            with wiped(kek):
                self._put_header(folder, header, keys)
                self._seal(folder, header, kek, keys)

    def remove_passphrase(self) -> None:
        """Makes all files plain again. After a kill the passphrase still works, or is gone; call it again to finish."""
        before = self._folder.read(HEADER_FILE)
        if before is None:
            return
        with wiped(self._ask()) as passphrase, self._folder.locked() as folder:
            header = self._header(folder)
            with wiped(header.derive(passphrase)) as kek:
                keys = header.open(kek)
                if header.state is not SealState.UNSEALING:
                    header = header.with_keys(kek, keys, SealState.UNSEALING, self._random)
                    self._put_header(folder, header, keys)
                self._unseal(folder, keys)

    def finish(self) -> bool:
        """Finishes an interrupted change of passphrase. False if there was nothing to do."""
        if self.passphrase_state() in (None, SealState.SEALED):
            return False
        with wiped(self._ask()) as passphrase, self._folder.locked() as folder:
            header = self._header(folder)
            with wiped(header.derive(passphrase)) as kek:
                keys = header.open(kek)
                if header.state is SealState.SEALING:
                    self._seal(folder, header, kek, keys)
                elif header.state is SealState.UNSEALING:
                    self._unseal(folder, keys)
        return True

    def clear(self) -> None:
        """Deletes every secret, and the header last. Only for a directory that is not in use any more, or not yet."""
        if not self._folder.path.exists():
            return
        with self._folder.locked() as folder:
            for name in self._folder.names():
                folder.delete(name)
            folder.sweep()
            folder.delete(HEADER_FILE)
        self.close()

    def _seal(self, folder: LockedFolder, header: PassphraseHeader, kek: bytearray, keys: MasterKeys) -> None:
        for name in self._folder.names():
            data = self._folder.read(name)
            if data is not None and not keys.is_current(data):
                secret = self._with_keys(name, data, header.state, keys)
                folder.write(name, keys.wrap(name, secret, self._random))
        folder.sweep()
        alone = keys.alone()
        self._put_header(folder, header.with_keys(kek, alone, SealState.SEALED, self._random), alone)
        keys.wipe()

    def _unseal(self, folder: LockedFolder, keys: MasterKeys) -> None:
        for name in self._folder.names():
            data = self._folder.read(name)
            if data is not None and is_wrapped(data):
                folder.write(name, self._with_keys(name, data, SealState.UNSEALING, keys))
        folder.delete(HEADER_FILE)  # §18.2-7: the header goes last
        keys.wipe()
        self.close()

    def _put_header(self, folder: LockedFolder, header: PassphraseHeader, keys: MasterKeys) -> None:
        data = header.to_bytes()
        folder.write(HEADER_FILE, data)
        if self._opened is not None and self._opened[1] is not keys:
            self._opened[1].wipe()
        self._opened = data, keys

    def _header(self, folder: LockedFolder) -> PassphraseHeader:
        del folder  # it says that the caller holds the lock
        data = self._folder.read(HEADER_FILE)
        if data is None:
            raise KeyStoreError(
                "the passphrase was removed by another process meanwhile", hint="Run the command again"
            )
        return self._parsed(data)

    def _parsed(self, data: bytes) -> PassphraseHeader:
        try:
            return PassphraseHeader.parse(data)
        except UnknownVersion:
            raise
        except Malformed as error:
            raise KeyStoreError(
                f"{self._folder.path / HEADER_FILE} is damaged: {error}",
                hint="Restore state/secrets from a backup: without this file no passphrase opens these keys",
            ) from None

    def _refuse_unfinished(self, header: bytes) -> None:
        if self._parsed(header).state is not SealState.SEALED:
            raise KeyStoreError(
                "another process changes the passphrase",
                hint="Wait until it is done, then run the command again",
            )

    def _keys(self, header: bytes) -> MasterKeys:
        """The master keys of this header; asks for the passphrase if they are not at hand."""
        if self._opened is not None and self._opened[0] == header:
            return self._opened[1]
        self.close()
        parsed = self._parsed(header)
        with wiped(self._ask()) as passphrase, wiped(parsed.derive(passphrase)) as kek:
            keys = parsed.open(kek)
        self._opened = header, keys
        return keys

    def _as_kept(self, name: str, secret: bytes, header: bytes) -> bytes:
        keys = self._keys(header)
        return (
            secret
            if self._parsed(header).state is SealState.UNSEALING
            else keys.wrap(name, secret, self._random)
        )

    def _plain(self, name: str, data: bytes, header: bytes | None) -> bytes:
        if header is not None:
            return self._with_keys(name, data, self._parsed(header).state, self._keys(header))
        if is_wrapped(data):
            raise KeyStoreError(
                f"{self._folder.path / name} is wrapped, but {self._folder.path / HEADER_FILE} is gone",
                hint="Restore that file from a backup: without it no passphrase opens these keys",
            )
        return self._sized(name, data)

    def _with_keys(self, name: str, data: bytes, state: SealState, keys: MasterKeys) -> bytes:
        secret = keys.unwrap(name, data)
        if secret is not None:
            return self._sized(name, secret)
        if is_wrapped(data):
            raise KeyStoreError(
                f"{self._folder.path / name} was wrapped under another passphrase's key",
                hint="Restore state/secrets as a whole from one backup",
            )
        if state is SealState.SEALED:  # §18.2-6
            raise KeyStoreError(
                f"{self._folder.path / name} is not wrapped, though this store has a passphrase: it is not ours",
                hint="Restore it from a backup; `crystal keys` shows the state of the key store",
            )
        return self._sized(name, data)

    def _sized(self, name: str, secret: bytes) -> bytes:
        if not 1 <= len(secret) <= SECRET_BYTES_MAX:
            raise KeyStoreError(
                f"{self._folder.path / name} holds {len(secret)} bytes, which is no secret of ours",
                hint=NOT_OURS_HINT,
            )
        return secret
