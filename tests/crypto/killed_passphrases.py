"""`python -m tests.crypto.killed_passphrases DIRECTORY`: processes that set, change and remove a passphrase die at each step.

Prints how many died. Raises when a secret was lost, or when the next run did not finish what the dead one began.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crystal_crypto.errors import WrongPassphrase
from crystal_crypto.keystore.files import FileKeyStore
from crystal_crypto.keystore.passphrase import Cost, SealState
from tests.support.dying_process import kill_at_each_step

CHEAP = Cost(memory_kib=64, iterations=1, lanes=1)
SECRETS = {"identity": b"the identity of this device", "root": bytes(range(32)), "relay-token": b"t" * 64}
OLD, NEW = b"the old passphrase", b"the new passphrase"

Step = Callable[[Callable[..., Any]], Callable[..., Any]]


def store(folder: Path, passphrase: bytes) -> FileKeyStore:
    return FileKeyStore(folder, lambda: bytearray(passphrase))


def opens(folder: Path, passphrase: bytes) -> bool:
    """Whether all secrets are there, whole, for whoever knows the passphrase."""
    try:
        return {name: store(folder, passphrase).load(name) for name in SECRETS} == SECRETS
    except WrongPassphrase:
        return False


def plain_bytes(folder: Path) -> list[str]:
    """The files, scraps included, that hold a secret as it is."""
    return [
        path.name
        for path in folder.iterdir()
        if any(secret in path.read_bytes() for secret in SECRETS.values())
    ]


def main() -> None:
    folder = Path(sys.argv[1]) / "secrets"

    def plain() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        for name, secret in SECRETS.items():
            store(folder, b"").store(name, secret)
        (folder / ".root.next.tmp").write_bytes(SECRETS["root"])  # a first write that died

    def closed() -> None:
        plain()
        store(folder, OLD).set_passphrase(bytearray(OLD), CHEAP)

    def sealed_by_new(done: bool) -> None:
        assert opens(folder, OLD) or opens(folder, NEW), "a secret is lost"
        known = NEW if opens(folder, NEW) else OLD
        if not done:
            store(folder, known).set_passphrase(bytearray(NEW), CHEAP)
        assert store(folder, NEW).passphrase_state() is SealState.SEALED
        assert opens(folder, NEW), "the passphrase that was set opens it"
        assert not opens(folder, OLD), "the passphrase that was replaced opens it no longer"
        assert plain_bytes(folder) == []

    def unsealed(done: bool) -> None:
        assert opens(folder, OLD), "a secret is lost"
        if not done:
            store(folder, OLD).remove_passphrase()
        assert store(folder, b"").passphrase_state() is None
        assert opens(folder, b""), "it opens without a passphrase"

    def finished(done: bool) -> None:
        """What `finish` alone makes of it: what was begun is ended, in either direction."""
        known = OLD if opens(folder, OLD) else NEW
        assert opens(folder, known)
        store(folder, known).finish()
        assert store(folder, known).passphrase_state() in (None, SealState.SEALED)
        assert opens(folder, known)
        assert done <= opens(folder, NEW)

    def set_new(_: Step) -> None:
        store(folder, OLD).set_passphrase(bytearray(NEW), CHEAP)

    def remove(_: Step) -> None:
        store(folder, OLD).remove_passphrase()

    deaths = kill_at_each_step(plain, set_new, sealed_by_new)
    deaths += kill_at_each_step(closed, set_new, sealed_by_new)
    deaths += kill_at_each_step(closed, set_new, finished)
    deaths += kill_at_each_step(closed, remove, unsealed)
    sys.stdout.write(f"{deaths}\n")


if __name__ == "__main__":
    main()
