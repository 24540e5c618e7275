"""`python -m tests.node.safekeeping.killed_rekeys DIRECTORY`: processes that replace the key of databases die at each step.

Prints how many died. Raises when a row cannot be read at any moment, or when the next run does not finish what the dead one
began.
"""

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from crystal_core import key_finder
from crystal_core.encryption import EncryptionState, Marker, connect, has_key, key_id, read_marker
from crystal_node.base.home import write_private
from crystal_node.base.settings import Config, KeyStoreKind, Settings, resolve
from crystal_node.device.keys import database_key
from crystal_node.device.keys.device_keys import DeviceKeys, open_keys
from crystal_node.device.keys.report import encryption_state
from crystal_node.safekeeping import database_encryption
from crystal_node.safekeeping.database_encryption import rekey_databases
from crystal_node.sync.leftovers import REWRITING
from tests.support.dying_process import kill_at_each_step

PLACES = ("state/jobs.db", "state/state.db", "memory/crystal.db")
ROWS = list(range(300))

Step = Callable[[Callable[..., Any]], Callable[..., Any]]


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ["CRYSTAL_HOME"] = str(folder / "home")
    os.umask(0o077)
    key_finder.use(database_key.find_key)

    def settings() -> Settings:
        return resolve()

    def keys() -> DeviceKeys:
        return open_keys(settings().home, KeyStoreKind.FILE)

    def paths() -> list[Path]:
        return [settings().home.root / place for place in PLACES]

    def all_rows_are_read() -> None:
        for path in paths():
            with closing(connect(path)) as db:
                assert [row[0] for row in db.execute("SELECT number FROM rows ORDER BY number")] == ROWS, path

    home = settings().home
    home.create()
    settings().save(Config(vault="0" * 32, key_store=KeyStoreKind.FILE))
    former = keys().made_database_key()
    for place in (home.state, home.database.parent):
        place.mkdir(exist_ok=True, mode=0o700)
        write_private(place / ".db-encryption", Marker(EncryptionState.ENCRYPTED, key_id(former)).to_bytes())
    opened = [connect(path) for path in paths()]
    for db in opened:
        list(
            db.execute("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE rows (number)")
        )
        list(db.execute("PRAGMA wal_checkpoint"))
        # These are in the write-ahead log alone, as of a process that was killed.
        with db:
            db.executemany("INSERT INTO rows VALUES (?)", [(number,) for number in ROWS])
    shutil.copytree(home.root, folder / "as it was")
    for db in opened:
        db.close()

    def set_up() -> None:
        shutil.rmtree(home.root)
        shutil.copytree(folder / "as it was", home.root)

    def work(step: Step) -> None:
        compare = database_encryption._compare  # pyright: ignore[reportPrivateUsage]  the step within that is killed
        database_encryption._compare = step(compare)  # pyright: ignore[reportPrivateUsage]
        rekey_databases(settings())

    def check(done: bool) -> None:
        all_rows_are_read()
        if not done:
            assert encryption_state(home) in (EncryptionState.ENCRYPTED, EncryptionState.REKEYING)
            rekey_databases(settings())
        all_rows_are_read()
        assert encryption_state(home) is EncryptionState.ENCRYPTED
        present, *before = keys().database_keys()
        # One that died in its last step was done, and the next run has replaced the key again.
        assert before[-1] == former
        assert len(before) <= 2
        assert {read_marker(place) for place in (home.state, home.database.parent)} == {
            Marker(EncryptionState.ENCRYPTED, key_id(present))
        }
        for path in paths():
            assert has_key(path, present)
            assert not any(has_key(path, key) for key in before)
        assert not list(home.root.rglob(f"*{REWRITING}*"))

    sys.stdout.write(f"{kill_at_each_step(set_up, work, check)}\n")


if __name__ == "__main__":
    main()
