"""``crystal keys encrypt``, ``rekey`` and ``decrypt``: no recorded word is left in the raw bytes, and none is lost."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from crystal_core.encryption import MARKER_NAME, PLAIN_BEGINNING, has_key
from crystal_node.base.locking import is_held
from crystal_node.sync.leftovers import REWRITING
from tests.node.device.test_keys import with_keyring
from tests.support.backups import backed_up
from tests.support.machine import Machine, Vault, transcript
from tests.support.recovery import kit_of
from tests.support.relay_process import RelayProcess
from tests.support.workbench import quick_folder

pytestmark = pytest.mark.slow

SAID = "the quicksilver harbour opens at dawn"
WAITING = "an unsent turquoise lantern"
WORDS = (b"quicksilver", b"turquoise")
UNCOVERED = {"agents", "staging", "drop", "sessions", ".trash"}
"""What the threat model names as not covered, of the folders of a home that may hold what was said."""
PASSPHRASE = "six words that a machine chose"


@pytest.fixture
def house(vault: Vault) -> Vault:
    vault.add()
    transcript(vault.core, SAID, "and who keeps the key")
    vault.core.call("capture")
    vault.settle()
    for machine in vault.machines:
        machine.call("remember", WAITING)
    return vault


def _databases(machine: Machine) -> list[Path]:
    """Every file of the folders that the option covers, whatever its name."""
    folders = (machine.home / "state", machine.home / "memory")
    return [path for folder in folders for path in folder.rglob("*") if path.is_file() and ".db" in path.name]


def _holding(paths: list[Path]) -> set[str]:
    return {path.name for path in paths if any(word in path.read_bytes() for word in WORDS)}


def _plain(machine: Machine) -> set[str]:
    return {path.name for path in _databases(machine) if path.read_bytes().startswith(PLAIN_BEGINNING)}


def _has_all(machine: Machine) -> None:
    assert SAID in machine.found("quicksilver harbour", "--fast")
    assert WAITING in machine.found("turquoise lantern", "--fast")


def _only_named_places_hold_words(house: Vault) -> None:
    """Every other file of a home with a recorded word in it is named by the threat model as not covered."""
    for machine in house.machines:
        files = [path for path in machine.home.rglob("*") if path.is_file()]
        for path in files:
            place = path.relative_to(machine.home).parts[0]
            assert place in UNCOVERED or not _holding([path]), path


def test_no_recorded_word_is_in_the_bytes_and_everything_is_found(house: Vault) -> None:
    for machine in house.machines:
        assert {"crystal.db", "state.db"} <= _holding(_databases(machine)) | {
            each.removesuffix("-wal") for each in _holding(_databases(machine))
        }
        done = machine.call("keys", "encrypt", "--json").json
        assert done["databases"] == "encrypted"
        assert {"memory/crystal.db", "state/state.db"} <= set(done["rewritten"])
        assert done["left"] == []
        assert _plain(machine) == set()
        _has_all(machine)
        machine.call("remember", "written afterwards: the quicksilver gate, too")
        machine.call("sync")
        assert _holding(_databases(machine)) == set()
        assert machine.call("keys", "--json").json["databases"] == "encrypted"
        assert machine.call("keys", "encrypt", "--json").json["rewritten"] == []
    house.settle()
    assert len(house.digests()) == 1
    _only_named_places_hold_words(house)
    for machine in house.machines:
        done = machine.call("keys", "decrypt", "--json").json
        assert {"memory/crystal.db", "state/state.db"} <= set(done["rewritten"])
        assert done["left"] == []
        assert not (machine.home / "state" / MARKER_NAME).exists()
        assert not (machine.home / "memory" / MARKER_NAME).exists()
        assert len(_plain(machine)) >= 2
        _has_all(machine)
        assert machine.call("keys", "decrypt", "--json").json["rewritten"] == []
    house.settle()
    assert len(house.digests()) == 1


def test_the_key_is_closed_by_the_passphrase_and_asked_for_once(house: Vault, tmp_path: Path) -> None:
    core = house.core
    core.run("keys", "encrypt")
    assert "plain file" in core.run("keys", "encrypt").out
    assert core.run("doctor", "--offline", check=False).out.count("at rest") == 1
    file = tmp_path / "passphrase"
    file.touch(mode=0o600)
    file.write_text(PASSPHRASE + "\n")
    core.run("keys", "passphrase", "--new-file", str(file))
    refused = core.run("search", "--json", "--fast", "--", "turquoise", check=False)
    assert refused.code == 8
    assert refused.error["error"].startswith("this device's keys are closed by a passphrase")
    core.extra["CRYSTAL_PASSPHRASE_FILE"] = str(file)
    _has_all(core)
    assert "plain file" not in core.run("keys", "encrypt").out
    found = core.run("doctor", "--offline", "--json", check=False).json["checks"]
    assert [each["state"] for each in found if each["name"] == "at rest"] == ["ok"]
    core.run("keys", "decrypt")
    del core.extra["CRYSTAL_PASSPHRASE_FILE"]
    _has_all(core)


def test_the_key_is_kept_in_the_keyring_and_moves_with_the_others(house: Vault, tmp_path: Path) -> None:
    core = house.core
    with_keyring(core, tmp_path)
    core.run("keys", "move", "--to", "keyring")
    assert core.run("keys", "encrypt", "--json").json["key_beside"] is False
    assert not (core.home / "state" / "secrets" / "database").exists()
    _has_all(core)
    folder = backed_up(core, tmp_path / "destination", "--with-keys")
    refused = core.run("search", "--fast", "turquoise", check=False, KEPT_KEYRING_MOOD="locked")
    assert (refused.code, "keyring" in refused.err) == (8, True)
    core.run("keys", "move", "--to", "file")
    del core.extra["PYTHON_KEYRING_BACKEND"]
    _has_all(core)
    restored = Machine(tmp_path / "restored")
    restored.root.mkdir()
    restored.run("backup", "restore", str(folder), "--yes")
    _has_all(restored)


def test_a_lost_key_is_named_in_one_line_with_what_to_do(house: Vault) -> None:
    core, laptop = house.core, house.nodes[0]
    laptop.run("keys", "encrypt")
    key = laptop.home / "state" / "secrets" / "database"
    kept = key.read_bytes()
    before = {path: path.read_bytes() for path in _databases(laptop)}
    for lost in (None, os.urandom(32)):
        key.unlink()
        if lost is not None:
            key.touch(mode=0o600)
            key.write_bytes(lost)
        for command in (("search", "--fast", "turquoise"), ("status",), ("keys", "decrypt"), ("sync",)):
            refused = laptop.run(*command, check=False)
            assert refused.code == 7, refused.err
            said = refused.err.strip().splitlines()
            assert "are encrypted, and their key is in no key store here" in said[-2]
            assert "`crystal pair --code -`" in said[-1]
            assert "`crystal recovery restore`" in said[-1]
        if lost is not None:
            assert laptop.run("keys", "encrypt", check=False).code == 7
        key.touch(mode=0o600)
    assert {path: path.read_bytes() for path in _databases(laptop) if path in before} == before
    # As the hint says: away with the home, and a code from another machine.
    key.unlink()
    shutil.move(laptop.home, laptop.root / "locked")
    laptop.call("pair", "--code", "-", "--relay", house.relay.url, typed=house.code() + "\n")
    house.settle()
    assert SAID in laptop.found("quicksilver harbour", "--fast")
    assert core.found("turquoise lantern", "--fast") == [WAITING]
    # With the key everything is there, what was not sent included.
    (laptop.root / "locked" / "state" / "secrets" / "database").write_bytes(kept)
    (laptop.root / "locked" / "state" / "secrets" / "database").chmod(0o600)
    laptop.extra["CRYSTAL_HOME"] = str(laptop.root / "locked")
    _has_all(laptop)


def test_without_the_ciphers_the_message_names_the_package(house: Vault, tmp_path: Path) -> None:
    core = house.core
    plain = tmp_path / "without"
    plain.mkdir()
    # The build without ciphers has every other name; this is the one by which Crystal tells them apart.
    (plain / "sitecustomize.py").write_text("import apsw\ndel apsw.mc_version\n")
    refused = core.run("keys", "encrypt", check=False, PYTHONPATH=str(plain))
    assert refused.code == 8
    assert "apsw-sqlite3mc" in refused.err
    assert not (core.home / "state" / MARKER_NAME).exists()
    core.run("keys", "encrypt")
    refused = core.run("search", "--fast", "turquoise", check=False, PYTHONPATH=str(plain))
    assert refused.code == 8
    assert "apsw-sqlite3mc" in refused.err
    _has_all(core)


def test_nothing_is_rewritten_while_others_use_the_home(house: Vault) -> None:
    core = house.core
    watcher = core.start("sync", "--watch")
    try:
        deadline = time.monotonic() + 60
        while not is_held(core.home / "state" / "watch.lock"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        refused = core.run("keys", "encrypt", check=False)
        assert refused.code == 9
        assert "this home is in use by process" in refused.err
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.communicate(timeout=60)
    with closing(apsw.Connection(str(core.home / "memory" / "crystal.db"))) as other:
        other.execute("SELECT count(*) FROM meta").fetchall()
        refused = core.run("keys", "encrypt", check=False)
        assert refused.code == 9
        assert "crystal.db is open in another process" in refused.err
        # What was encrypted before it noticed is read like the rest.
        assert core.run("status", "--json").json["databases"] == "encrypting"
        _has_all(core)
    core.run("keys", "encrypt")
    assert core.run("status", "--json").json["databases"] == "encrypted"
    assert _plain(core) == set()
    _has_all(core)


def test_a_process_that_waited_writes_to_the_new_file(house: Vault) -> None:
    """One that opens a database during its rewriting must not commit to the file that is about to vanish."""
    core = house.core
    waiting = [core.start("remember", f"written meanwhile {number}") for number in range(3)]
    core.run("keys", "encrypt")
    more = [core.start("remember", f"written right after {number}") for number in range(3)]
    for each in (*waiting, *more):
        out, err = each.communicate(timeout=120)
        assert each.returncode == 0, out + err
    for number in range(3):
        assert f"written meanwhile {number}" in core.found(f"written meanwhile {number}", "--fast")
        assert f"written right after {number}" in core.found(f"written right after {number}", "--fast")
    assert _plain(core) == set()


def test_copies_that_were_put_aside_are_covered(house: Vault) -> None:
    core = house.core
    kept = Path(core.call("restore", "--yes", "--json").json["kept"])
    assert kept.name in _holding(_databases(core))
    (core.home / "state" / "jobs.db.damaged").write_bytes(PLAIN_BEGINNING + b"quicksilver" * 500)
    os.utime(kept, (1_000_000, 1_000_000))
    done = core.call("keys", "encrypt", "--json").json
    assert f"memory/{kept.name}" in done["rewritten"]
    assert kept.stat().st_mtime == 1_000_000, (
        "it is deleted a week after it was made, not after it was encrypted"
    )
    assert done["left"] == ["state/jobs.db.damaged"]
    assert _holding(_databases(core)) == {"jobs.db.damaged"}
    (core.home / "state" / "jobs.db.damaged").unlink()
    # A memory that is rebuilt, from the relay or from a plain copy, is encrypted as the home is.
    core.call("restore", "--yes")
    core.call("restore", "--yes", "--from", str(house.nodes[0].home))
    house.settle()
    assert len(house.digests()) == 1
    assert _holding(_databases(core)) == set()
    assert _plain(core) == set()
    refused = house.nodes[0].call("restore", "--yes", "--from", str(core.home), check=False)
    assert refused.code == 2
    assert "crystal keys decrypt" in refused.err


def test_a_backup_of_an_encrypted_home_is_encrypted_and_comes_back_on_another(
    house: Vault, tmp_path: Path
) -> None:
    core = house.core
    core.run("keys", "encrypt")
    with_keys = backed_up(core, tmp_path / "with", "--with-keys")
    without = backed_up(core, tmp_path / "without")
    for folder in (with_keys, without):
        databases = [path for path in folder.rglob("*.db") if path.is_file()]
        assert len(databases) >= 2
        assert _holding(databases) == set()
        assert not any(path.read_bytes().startswith(PLAIN_BEGINNING) for path in databases)
    stranger = Machine(tmp_path / "stranger")
    stranger.root.mkdir()
    assert stranger.run("backup", "verify", str(with_keys), "--json").json["locked"] is False
    looked = stranger.run("backup", "verify", str(without), "--json").json
    assert (looked["ok"], looked["locked"], looked["digest"]) == (True, True, None)
    assert core.run("backup", "verify", str(without), "--json").json["digest_checked"] is True
    stranger.run("backup", "restore", str(with_keys), "--yes")
    assert stranger.run("keys", "--json").json["databases"] == "encrypted"
    assert _plain(stranger) == set()
    _has_all(stranger)
    stranger.run("keys", "decrypt")
    _has_all(stranger)
    text = tmp_path / "kit.txt"
    text.write_text(kit_of(core))
    other = Machine(tmp_path / "other")
    other.root.mkdir()
    refused = other.run("backup", "restore", str(without), "--kit", str(text), "--yes", check=False)
    assert refused.code == 2
    assert "encrypted with their device's own key" in refused.err
    assert not (other.home / "memory" / "crystal.db").exists()


def test_the_key_is_replaced_and_backups_from_before_still_open(house: Vault, tmp_path: Path) -> None:
    core = house.core
    refused = core.call("keys", "rekey", "--json", check=False)
    assert refused.code == 2
    assert "are not encrypted" in refused.error["error"]
    core.call("keys", "encrypt")
    key = core.home / "state" / "secrets" / "database"
    seen = key.read_bytes()
    before = backed_up(core, tmp_path / "before")
    done = core.call("keys", "rekey", "--json").json
    assert done["databases"] == "encrypted"
    assert {"memory/crystal.db", "state/state.db"} <= set(done["rewritten"])
    _has_all(core)
    assert key.read_bytes() != seen
    assert not any(has_key(path, seen) for path in _databases(core) if path.suffix == ".db")
    core.call("remember", "written under the new key, in quicksilver")
    core.run("sync")
    house.settle()
    assert len(house.digests()) == 1
    assert _holding(_databases(core)) == set()
    assert core.call("backup", "verify", str(before), "--json").json["digest_checked"] is True
    core.call("keys", "decrypt")
    _has_all(core)


@pytest.mark.timeout(400)
def test_killed_at_any_step_a_new_key_loses_nothing_and_the_next_run_finishes_it() -> None:
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.node.safekeeping.killed_rekeys", folder],
            capture_output=True,
            text=True,
            timeout=350,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 80


@pytest.mark.timeout(400)
def test_a_process_killed_anywhere_leaves_a_home_that_works_and_is_finished_by_the_next(
    relay: RelayProcess, tmp_path: Path
) -> None:
    core = Vault(relay, tmp_path).core
    transcript(core, *(f"{SAID}; line {number} of the log " + "x" * 400 for number in range(2000)), SAID)
    core.call("capture")
    core.call("sync")
    core.call("remember", WAITING)
    digest = core.call("verify", "--json").json["digest"]
    killed = 0
    for command, other in (("encrypt", "decrypt"), ("decrypt", "encrypt")):
        started = time.monotonic()
        core.run("keys", command)
        whole = time.monotonic() - started
        core.run("keys", other)
        for step in range(5):
            process = core.start("keys", command)
            time.sleep(whole * (0.25 + step * 0.15))
            process.kill()
            process.communicate(timeout=60)
            if process.returncode == -signal.SIGKILL:
                killed += 1
            else:  # quicker than before: it was done
                whole *= 0.6
            assert core.call("verify", "--json").json["digest"] == digest
            _has_all(core)
            if step % 2:
                core.call("keys", other)  # back from wherever it was
        core.call("keys", command)
        assert core.call("verify", "--json").json["digest"] == digest
        _has_all(core)
        assert not [path for path in _databases(core) if path.name.endswith(REWRITING)]
        if command == "encrypt":
            assert _plain(core) == set()
            assert _holding(_databases(core)) == set()
    assert killed >= 4
