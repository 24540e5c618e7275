"""`crystal keys`: where keys are, a passphrase for them, and moves that lose nothing; what is wrong is said with its remedy."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crystal_crypto.keystore import FileKeyStore
from crystal_node.base.locking import is_held
from tests.crypto.killed_passphrases import CHEAP
from tests.support.machine import Machine, Vault
from tests.support.terminal import Terminal
from tests.support.workbench import quick_folder

PASSPHRASE = "six words that a machine chose"


def with_keyring(machine: Machine, folder: Path) -> None:
    machine.extra |= {
        "PYTHON_KEYRING_BACKEND": "tests.support.kept_keyring.Keyring",
        "KEPT_KEYRING": str(folder / "keyring.json"),
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
    }


def written(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def closed(machine: Machine) -> None:
    """Sets PASSPHRASE, at a cost that suits tests."""
    FileKeyStore(machine.home / "state" / "secrets").set_passphrase(bytearray(PASSPHRASE.encode()), CHEAP)


def until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def keys(machine: Machine) -> dict[str, object]:
    return machine.call("keys", "--json").json


def test_a_passphrase_from_a_file_closes_the_keys_for_every_command(vault: Vault, tmp_path: Path) -> None:
    core, file = vault.core, written(tmp_path / "pass", PASSPHRASE + "\n")
    assert keys(core)["passphrase"] == "none"
    done = core.run("keys", "passphrase", "--json", CRYSTAL_PASSPHRASE_FILE=file)
    assert done.json == {"passphrase": True, "change": "set"}
    assert keys(core)["passphrase"] == "set"
    refused = core.call("status", "--json", check=False)
    assert refused.code == 8
    assert "nobody can be asked" in refused.error["error"]
    assert "CRYSTAL_PASSPHRASE_FILE" in refused.error["hint"]
    assert core.call("status", "--json", CRYSTAL_PASSPHRASE_FILE=file).json["role"] == "core"
    core.call("sync", CRYSTAL_PASSPHRASE_FILE=file)


def test_a_service_without_the_passphrase_stops_at_once_and_says_how_it_gets_it(vault: Vault) -> None:
    closed(vault.core)
    done = vault.core.run("sync", "--watch", check=False)
    assert done.code == 8
    assert "CRYSTAL_PASSPHRASE_FILE" in done.err


def test_a_wrong_passphrase_is_told_by_its_own_exit_code_and_never_shown(
    vault: Vault, tmp_path: Path
) -> None:
    closed(vault.core)
    file = written(tmp_path / "pass", "not-the-right-words\n")
    for more in ((), ("--debug",), ("--json",)):
        done = vault.core.run("status", *more, check=False, CRYSTAL_PASSPHRASE_FILE=file, CRYSTAL_DEBUG="1")
        assert done.code == 7
        assert "not the passphrase" in done.err
        assert "not-the-right-words" not in done.out + done.err


def test_a_passphrase_is_changed_and_removed(vault: Vault, tmp_path: Path) -> None:
    core = vault.core
    closed(core)
    old = written(tmp_path / "old", PASSPHRASE)
    new = written(tmp_path / "new", "another six words of a machine")
    change = ("keys", "passphrase", "--new-file", new, "--json")
    assert core.call(*change, CRYSTAL_PASSPHRASE_FILE=old).json["change"] == "changed"
    assert core.call("status", check=False, CRYSTAL_PASSPHRASE_FILE=old).code == 7
    core.call("status", CRYSTAL_PASSPHRASE_FILE=new)
    again = core.call(*change, CRYSTAL_PASSPHRASE_FILE=old)
    assert again.json["change"] == "finished", "the same command again is no error"
    missing = core.call("keys", "passphrase", "--json", check=False, CRYSTAL_PASSPHRASE_FILE=new)
    assert (missing.code, "--new-file" in missing.error["hint"]) == (2, True)
    assert core.call("keys", "passphrase", "--remove", check=False).code == 8
    removed = core.call("keys", "passphrase", "--remove", "--json", CRYSTAL_PASSPHRASE_FILE=new).json
    assert removed == {"passphrase": False, "change": "removed"}
    core.call("status")
    assert core.call("keys", "passphrase", "--remove", "--json").json["change"] == "none"


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (PASSPHRASE, 0o644, "used by others"),
        (PASSPHRASE, 0o640, "used by others"),
        (PASSPHRASE, 0o602, "used by others"),
        ("", 0o600, "empty"),
        ("\n", 0o600, "empty"),
        ("two\nlines\n", 0o600, "more than one line"),
        ("x" * 2000, 0o600, "over 1024 bytes"),
        ("a file that is not there", None, "cannot be read"),
    ],
)
def test_a_passphrase_file_that_cannot_be_used_is_named_with_the_reason(
    content: str, mode: int | None, said: str, vault: Vault, tmp_path: Path
) -> None:
    closed(vault.core)
    path = tmp_path / "pass"
    if mode is not None:
        path.write_text(content)
        path.chmod(mode)
        if os.geteuid() == 0:
            os.chown(path, 0, 12345)  # root's own group is nobody else
    refused = vault.core.call("status", "--json", check=False, CRYSTAL_PASSPHRASE_FILE=str(path))
    assert refused.code == 3
    assert said in refused.error["error"]
    assert str(path) in refused.error["error"]
    assert PASSPHRASE not in refused.err


def test_keyboards_that_compose_letters_differently_type_the_same_passphrase(
    vault: Vault, tmp_path: Path
) -> None:
    core = vault.core
    composed = written(tmp_path / "composed", "sch\u00f6ne lange W\u00f6rter\r\n")
    taken_apart = written(tmp_path / "apart", "scho\u0308ne lange Wo\u0308rter")
    core.call("keys", "passphrase", CRYSTAL_PASSPHRASE_FILE=composed)
    core.call("status", CRYSTAL_PASSPHRASE_FILE=taken_apart)


def test_at_a_terminal_the_passphrase_is_asked_for_without_echo(vault: Vault) -> None:
    terminal = Terminal(vault.core, "keys", "passphrase")
    for prompt in ("New passphrase: ", "The same again: "):
        terminal.until(prompt)
        terminal.type(PASSPHRASE + "\n")
    terminal.until("The passphrase is set")
    assert terminal.end() == 0
    assert PASSPHRASE not in terminal.shown
    status = Terminal(vault.core, "status")
    status.until("Passphrase of this device's keys: ")
    status.type(PASSPHRASE + "\n")
    status.until("is a Core of vault")
    assert status.end() == 0
    assert PASSPHRASE not in status.shown


def test_a_slip_in_the_repetition_sets_nothing(vault: Vault) -> None:
    terminal = Terminal(vault.core, "keys", "passphrase", TERM="dumb")
    for prompt, typed in (
        ("New passphrase: ", "first words typed"),
        ("The same again: ", "other words typed"),
    ):
        terminal.until(prompt)
        terminal.type(typed + "\n")
    terminal.until("not the same")
    assert terminal.end() == 2
    assert keys(vault.core)["passphrase"] == "none"


def test_neither_arguments_nor_environment_of_the_process_show_a_passphrase(
    vault: Vault, tmp_path: Path
) -> None:
    closed(vault.core)
    file = written(tmp_path / "pass", PASSPHRASE)
    vault.core.fresh = True
    process = vault.core.start("sync", "--watch", CRYSTAL_PASSPHRASE_FILE=file)
    try:
        until(lambda: is_held(vault.core.home / "state" / "watch.lock"))
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        with contextlib.suppress(PermissionError):  # a process with keys shows its environment to root only
            shown += Path(f"/proc/{process.pid}/environ").read_bytes()
            assert file.encode() in shown
        assert PASSPHRASE.encode() not in shown
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_keys_move_into_the_keyring_and_back(vault: Vault, tmp_path: Path) -> None:
    core = vault.core
    with_keyring(core, tmp_path)
    before = core.call("status", "--json").json["device"]
    moved = core.run("keys", "move", "--to", "keyring", "--json").json
    assert moved == {"place": "keyring", "moved": ["identity", "root", "relay-token"]}
    assert list((core.home / "state" / "secrets").iterdir()) == []
    assert core.run("status", "--json").json["device"] == before
    assert core.run("keys", "move", "--to", "keyring", "--json").json["moved"] == []
    core.run("keys", "move", "--to", "file")
    assert core.run("status", "--json").json["device"] == before
    assert (tmp_path / "keyring.json").read_text() == "{}"


def test_keys_under_a_passphrase_move_and_leave_no_header_behind(vault: Vault, tmp_path: Path) -> None:
    core = vault.core
    with_keyring(core, tmp_path)
    closed(core)
    file = written(tmp_path / "pass", PASSPHRASE)
    refused = core.run("keys", "move", "--to", "keyring", check=False)
    assert refused.code == 8
    core.run("keys", "move", "--to", "keyring", CRYSTAL_PASSPHRASE_FILE=file)
    assert list((core.home / "state" / "secrets").iterdir()) == []
    core.run("status")
    asked = core.run("keys", "passphrase", "--json", check=False, CRYSTAL_PASSPHRASE_FILE=file)
    assert (asked.code, "move --to file" in asked.error["hint"]) == (2, True)


@pytest.mark.parametrize(
    ("mood", "said", "hint"),
    [
        ("locked", "locked", "Unlock"),
        ("absent", "keyring cannot be reached", "--key-store file"),
        ("hanging", "did not answer within", "unlock"),
        ("lying", "does not return what was stored", "--key-store file"),
    ],
)
def test_a_keyring_that_does_not_work_takes_no_keys_and_says_why(
    mood: str, said: str, hint: str, vault: Vault, tmp_path: Path
) -> None:
    core = vault.core
    with_keyring(core, tmp_path)
    refused = core.run("keys", "move", "--to", "keyring", "--json", check=False, KEPT_KEYRING_MOOD=mood)
    assert refused.code == 8
    assert said in refused.error["error"]
    assert hint in refused.error["hint"]
    core.run("status")
    assert keys(core)["place"] == "file"


@pytest.mark.parametrize(
    ("mood", "said"),
    [("locked", "locked"), ("absent", "keyring cannot be reached"), ("hanging", "did not answer within")],
)
def test_a_keyring_that_has_the_keys_and_does_not_give_them_is_told(
    mood: str, said: str, vault: Vault, tmp_path: Path
) -> None:
    core = vault.core
    with_keyring(core, tmp_path)
    core.run("keys", "move", "--to", "keyring")
    refused = core.run("status", "--json", check=False, KEPT_KEYRING_MOOD=mood)
    assert refused.code == 8
    assert said in refused.error["error"]
    assert refused.error["hint"]
    core.run("status")


@pytest.mark.slow
def test_killed_at_any_step_a_move_loses_nothing_and_the_next_run_finishes_it() -> None:
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.node.device.killed_moves", folder],
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"(\d+)\n", done.stdout)
    assert found is not None
    assert int(found.group(1)) > 150


def test_a_home_without_keys_says_what_to_do(machine: Machine) -> None:
    for arguments in (("keys",), ("keys", "passphrase"), ("keys", "move", "--to", "file")):
        refused = machine.call(*arguments, "--json", check=False)
        assert refused.code == 3
        assert "crystal up" in refused.error["hint"]


def test_keys_that_are_not_where_the_config_says_are_found_and_never_cleared(
    vault: Vault, tmp_path: Path
) -> None:
    core = vault.core
    with_keyring(core, tmp_path)
    before = (core.home / "config.json").read_bytes()
    core.call("keys", "move", "--to", "keyring")
    (core.home / "config.json").write_bytes(before)  # from a backup
    assert core.call("role", "--json", check=False).code == 8
    assert core.call("keys", "move", "--to", "keyring", "--json").json == {"place": "keyring", "moved": []}
    assert core.call("role", "--json").json["role"] == "core"
    assert keys(core)["copies_left_in"] is None
