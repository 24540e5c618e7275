"""The key store: what a passphrase costs in time and memory, and a cold `crystal status` with each place for the keys.

The passphrase is slow on purpose, for who guesses as for who knows it; each command pays it once. The keyring is a real one,
gnome-keyring on a D-Bus session of its own; where that is not installed its row is left out.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.harness import Row, interleaved, timed, value_at_least, value_at_most
from crystal_crypto.keystore.passphrase import COST, MasterKeys, new_header
from crystal_node.base.settings import child_environment
from crystal_node.surfaces.demo.machines import DemoRelay
from tests.support.secret_service import missing_programs, secret_service

_MEMORY = """
import os
from pathlib import Path
from crystal_crypto.keystore.passphrase import COST, MasterKeys, new_header
def peak_kib():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
keys = MasterKeys.generate(os.urandom)
before = peak_kib()
new_header(bytearray(b"a passphrase"), keys, COST, os.urandom)
print((peak_kib() - before) / 1024)
"""
_PASSPHRASE = "six words that a machine chose"


def run(quick: bool) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as folder:
        return [*_argon2id(repeat=3 if quick else 9), *_status(Path(folder), repeat=5 if quick else 21)]


def _argon2id(*, repeat: int) -> list[Row]:
    keys = MasterKeys.generate(os.urandom)
    seconds = timed(
        lambda: new_header(bytearray(b"a passphrase"), keys, COST, os.urandom), repeat=repeat
    ).median
    grown = subprocess.run([sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True).stdout
    cost = f"{COST.iterations} passes, {COST.lanes} lanes"
    return [
        Row(name="opening a passphrase", value=seconds, unit="s", target=value_at_most(1.0), note=cost),
        Row(name="the same, for a thief", value=seconds, unit="s", target=value_at_least(0.5)),
        Row(name="its memory", value=float(grown), unit="MiB", target=value_at_most(72), note="64 MiB asked"),
    ]


def _status(folder: Path, *, repeat: int) -> list[Row]:
    """The same device, its keys in one place after the other."""
    relay = DemoRelay(folder / "relay")
    relay.start()
    try:
        files = _device(folder / "files", relay, {"CRYSTAL_KEY_STORE": "file"})
        closed = _device(folder / "closed", relay, {"CRYSTAL_KEY_STORE": "file"} | _closing(folder))
        files("status")
        closed("keys", "passphrase")
        works = {"files": lambda: files("status"), "passphrase": lambda: closed("status")}
        if missing_programs():
            return _rows(works, repeat)
        with secret_service(folder / "session") as service:
            service.unlock()
            keyring = _device(folder / "keyring", relay, {"CRYSTAL_KEY_STORE": "keyring"} | service.variables)
            works["keyring"] = lambda: keyring("status")
            return _rows(works, repeat)
    finally:
        relay.stop()


def _closing(folder: Path) -> dict[str, str]:
    path = folder / "passphrase"
    path.touch(mode=0o600)
    path.write_text(_PASSPHRASE)
    return {"CRYSTAL_PASSPHRASE_FILE": str(path)}


def _device(home: Path, relay: DemoRelay, variables: dict[str, str]) -> Callable[..., None]:
    """Sets a device up; gives what runs a command on it."""
    environment = child_environment({"CRYSTAL_HOME": str(home), "HOME": str(home.parent)} | variables)

    def command(*arguments: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "crystal_node", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )

    environment["CRYSTAL_RELAY_ENROLL_TOKEN"] = relay.token
    command("init", "--role", "core", "--relay", relay.url, "--yes")
    del environment["CRYSTAL_RELAY_ENROLL_TOKEN"]
    return command


def _rows(works: dict[str, Callable[[], None]], repeat: int) -> list[Row]:
    timings = {name: timing.median * 1000 for name, timing in interleaved(works, repeat=repeat).items()}
    rows = [
        Row(name="cold `crystal status`, keys in files", value=timings["files"], unit="ms"),
        Row(
            name="cold `crystal status`, files closed by a passphrase", value=timings["passphrase"], unit="ms"
        ),
    ]
    if "keyring" in timings:
        rows.append(
            Row(
                name="cold `crystal status`, keys in the keyring",
                value=timings["keyring"],
                unit="ms",
                baseline="in files",
                baseline_value=timings["files"],
                target=value_at_most(300),
            )
        )
    return rows
