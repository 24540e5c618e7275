"""`crystal doctor` names what is wrong, each thing with its remedy, and the exit code of the first that failed."""

import json
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.node.device.test_keys import PASSPHRASE, closed, with_keyring, written
from tests.support.invited import invite
from tests.support.machine import Machine, Vault


def doctor(machine: Machine, *arguments: str, **variables: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the checks by their names."""
    done = machine.call("doctor", "--json", *arguments, check=False, **variables)
    assert done.json["ok"] == (done.code == 0)
    return done.code, {check["name"]: check for check in done.json["checks"]}


def test_a_device_that_is_well_is_told_so(vault: Vault) -> None:
    vault.core.call("sync")
    code, checks = doctor(vault.core)
    assert code == 0
    states = {name: check["state"] for name, check in checks.items()}
    assert states == {
        "permissions": "ok",
        "key store": "ok",
        "passphrase": "ok",
        "at rest": "ok",
        "disk": "ok",
        "databases": "ok",
        "device": "ok",
        "outbox": "ok",
        "sync": "ok",
        "watcher": "warning",
        "tools": "ok",
        "embedding": "ok",
        "indexes": "ok",
        "device log": "ok",
        "generation": "ok",
        "snapshots": "ok",
        "recovery kit": "warning",
        "relay holds": "ok",
        "model": "ok",
        "relay": "ok",
        "clock": "ok",
    }
    assert all(check["fix"] for check in checks.values() if check["state"] != "ok")
    said = vault.core.run("doctor").out
    assert "crystal sync --watch" in said
    assert "recovery verify" in said


def test_a_judge_that_was_asked_for_and_is_not_there_is_named(vault: Vault) -> None:
    code, checks = doctor(
        vault.core, "--offline", CRYSTAL_SEARCH_JUDGE="auto", CRYSTAL_SEARCH_JUDGE_MODEL="/no/such/model"
    )
    assert code == 0
    assert checks["judge"]["state"] == "warning"
    assert "hits are not judged" in checks["judge"]["what"]
    assert "/no/such" not in checks["judge"]["what"]


def test_offline_it_asks_nobody(vault: Vault) -> None:
    code, checks = doctor(vault.core, "--offline", CRYSTAL_RELAY_URL="http://127.0.0.1:9")
    assert code == 0
    assert not {"relay", "clock"} & set(checks)


def test_a_relay_that_is_gone_is_told_and_the_rest_looked_at_all_the_same(vault: Vault) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        code, checks = doctor(vault.core, CRYSTAL_RELAY_URL=f"http://127.0.0.1:{held.getsockname()[1]}")
    assert code == 4
    assert checks["relay"]["state"] == "failed"
    assert checks["device log"]["state"] == "ok"


@pytest.mark.parametrize(("ahead", "said"), [(3600, "behind"), (-86_400, "ahead of")])
def test_a_clock_that_differs_from_the_relays_is_told(ahead: int, said: str, vault: Vault) -> None:
    class Relay(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(200)
            moment = datetime.now(UTC) + timedelta(seconds=ahead)
            self.send_header("Date", format_datetime(moment, usegmt=True))
            self.end_headers()
            self.wfile.write(json.dumps({"ok": True}).encode())

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  the base class's name
            del format, arguments

    with HTTPServer(("127.0.0.1", 0), Relay) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        code, checks = doctor(vault.core, CRYSTAL_RELAY_URL=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert code != 0
    assert checks["relay holds"]["state"] == "failed", "it shows nothing of the vault"
    assert checks["clock"]["state"] == "warning"
    assert said in checks["clock"]["what"]


def test_all_that_others_can_use_is_listed_at_once(vault: Vault) -> None:
    for path in ("state", "config.json"):
        (vault.core.home / path).chmod(0o755)
    done = vault.core.call("doctor", "--json", "--offline", check=False)
    exposed = [check for check in done.json["checks"] if check["name"] == "permissions"]
    assert done.code == 8
    assert [check["state"] for check in exposed] == ["failed", "failed"]
    assert all(check["fix"].startswith("chmod ") for check in exposed)


def test_a_passphrase_that_is_missing_or_wrong_is_told(vault: Vault, tmp_path: Path) -> None:
    closed(vault.core)
    code, checks = doctor(vault.core, "--offline")
    assert (code, checks["passphrase"]["what"], checks["device"]["state"]) == (8, "set", "failed")
    assert "CRYSTAL_PASSPHRASE_FILE" in checks["device"]["fix"]
    wrong, right = written(tmp_path / "wrong", "other words"), written(tmp_path / "right", PASSPHRASE)
    code, checks = doctor(vault.core, "--offline", CRYSTAL_PASSPHRASE_FILE=wrong)
    assert (code, checks["device"]["state"]) == (7, "failed")
    code, checks = doctor(vault.core, "--offline", CRYSTAL_PASSPHRASE_FILE=right)
    assert (code, checks["passphrase"]["what"]) == (0, f"set, read from {right}")


def test_it_says_which_key_store_and_why(vault: Vault, tmp_path: Path) -> None:
    core = vault.core
    null = "keyring.backends.null.Keyring"
    found = json.loads(core.run("doctor", "--offline", "--json", PYTHON_KEYRING_BACKEND=null).out)
    assert "there is no keyring to use" in found["checks"][1]["what"]
    with_keyring(core, tmp_path)
    found = json.loads(core.run("doctor", "--offline", "--json").out)
    assert "would work, too" in found["checks"][1]["what"]
    core.run("keys", "move", "--to", "keyring")
    found = json.loads(core.run("doctor", "--offline", "--json").out)
    assert "kept and returned a test secret" in found["checks"][1]["what"]
    locked = core.run("doctor", "--offline", "--json", check=False, KEPT_KEYRING_MOOD="locked")
    assert locked.code == 8
    assert "locked" in json.loads(locked.out)["checks"][1]["what"]


def test_an_interrupted_move_is_told_with_the_command_that_ends_it(vault: Vault) -> None:
    config = vault.core.home / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"key_store_left": "keyring"}))
    code, checks = doctor(vault.core, "--offline")
    assert code == 0
    assert checks["key store"]["state"] == "warning"
    assert checks["key store"]["fix"] == "crystal keys move --to file"


def test_a_home_that_is_not_set_up_says_how_to_set_it_up(machine: Machine) -> None:
    code, checks = doctor(machine, "--offline")
    assert code == 3
    assert "crystal up" in checks["device"]["fix"]


def test_a_relay_that_refuses_this_device_is_no_healthy_one(vault: Vault) -> None:
    phone = invite(vault, "phone")
    vault.core.call("devices", "revoke", "phone", "--yes")
    assert phone.call("sync", check=False).code == 5
    code, checks = doctor(phone)
    assert code == 5
    assert checks["relay"]["state"] == "ok"
    assert checks["access"]["state"] == "failed"
    assert "crystal pair" in checks["access"]["fix"]
    assert "access" not in doctor(vault.core)[1]
