"""A keyring that works, in a file, so that it outlives the processes of a test.

PYTHON_KEYRING_BACKEND=tests.support.kept_keyring.Keyring; the file is the one that KEPT_KEYRING names. KEPT_KEYRING_MOOD
makes it what a real one can be: `locked`, `hanging`, `lying` (it keeps nothing), `absent`.
"""

import json
import os
import threading
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.compat import properties
from keyring.errors import InitError, KeyringLocked


class Keyring(KeyringBackend):
    @properties.classproperty
    def priority(cls) -> float:  # noqa: N805 - a property of the class
        return 5

    def get_password(self, service: str, username: str) -> str | None:
        _mood()
        return _read().get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        _mood()
        if os.environ.get("KEPT_KEYRING_MOOD") != "lying":
            _write(_read() | {f"{service} {username}": password})

    def delete_password(self, service: str, username: str) -> None:
        _mood()
        kept = _read()
        del kept[f"{service} {username}"]
        _write(kept)


def _mood() -> None:
    match os.environ.get("KEPT_KEYRING_MOOD"):
        case "locked":
            raise KeyringLocked("Failed to unlock the collection!")
        case "absent":
            raise InitError("Failed to create the collection: no bus")
        case "hanging":
            threading.Event().wait(60)
        case _:
            pass


def _path() -> Path:
    return Path(os.environ["KEPT_KEYRING"])


def _read() -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(_path().read_text())
    except FileNotFoundError:
        return {}
    return found


def _write(kept: dict[str, str]) -> None:
    scrap = _path().with_suffix(".new")
    scrap.write_text(json.dumps(kept))
    scrap.replace(_path())
