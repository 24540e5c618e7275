"""`python -m tests.node.device.killed_moves DIRECTORY`: processes that move keys between files and keyring die at each step.

Prints how many died. Raises when a key was lost, or is in two places after the next run.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crystal_node.base.settings import Config, KeyStoreKind, Settings, resolve
from crystal_node.device.keys.device_keys import NAMES, file_store, keyring_store, open_keys
from crystal_node.device.keys.moves import move_keys
from tests.support.dying_process import kill_at_each_step
from tests.support.kept_keyring import Keyring

SECRETS = {"identity": b"the identity of this device", "root": bytes(range(32)), "relay-token": b"t" * 64}
FILE, KEYRING = KeyStoreKind.FILE, KeyStoreKind.KEYRING

Step = Callable[[Callable[..., Any]], Callable[..., Any]]


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ["KEPT_KEYRING"] = str(folder / "keyring.json")
    os.environ["PYTHON_KEYRING_BACKEND"] = "tests.support.kept_keyring.Keyring"

    def settings() -> Settings:
        return resolve(None, {"CRYSTAL_HOME": str(folder / "home")})

    def in_force() -> dict[str, bytes | None]:
        config = settings().config
        store = open_keys(settings().home, config.key_store, config.keyring_backend).store
        return {name: store.load(name) for name in SECRETS}

    def set_up(kind: KeyStoreKind, *, stale: bool = True) -> None:
        shutil.rmtree(folder / "home", ignore_errors=True)
        (folder / "keyring.json").unlink(missing_ok=True)
        home = settings().home
        home.create()
        store = open_keys(home, kind).store
        for name, secret in SECRETS.items():
            store.store(name, secret)
        if (
            stale
        ):  # in the other place, as a home that was restored may have one: it must never come into force
            (file_store(home) if kind is KEYRING else keyring_store(home)).store("root.next", b"stale")
        settings().save(Config(vault="0" * 32, key_store=kind))

    def move(target: KeyStoreKind) -> Callable[[Step], None]:
        def work(step: Step) -> None:
            for name in ("set_password", "delete_password"):
                setattr(Keyring, name, step(getattr(Keyring, name)))
            move_keys(settings(), target)

        return work

    def check(target: KeyStoreKind) -> Callable[[bool], None]:
        def check_and_finish(done: bool) -> None:
            assert in_force() == SECRETS, "a key is lost"
            if not done:
                move_keys(settings(), target)
            config = settings().config
            assert (config.key_store, config.key_store_left) == (target, "")
            assert in_force() == SECRETS
            home = settings().home
            assert file_store(home).names() == (sorted(SECRETS) if target is FILE else [])
            in_keyring = [name for name in NAMES if keyring_store(home).load(name) is not None]
            assert in_keyring == ([] if target is FILE else [name for name in NAMES if name in SECRETS])

        return check_and_finish

    def turned_round(_: bool) -> None:
        """Whoever changes their mind half way gets all of it back."""
        assert in_force() == SECRETS
        move_keys(settings(), FILE)
        check(FILE)(True)

    deaths = kill_at_each_step(lambda: set_up(FILE), move(KEYRING), check(KEYRING))
    deaths += kill_at_each_step(lambda: set_up(KEYRING), move(FILE), check(FILE))
    deaths += kill_at_each_step(lambda: set_up(FILE, stale=False), move(KEYRING), turned_round)
    sys.stdout.write(f"{deaths}\n")


if __name__ == "__main__":
    main()
