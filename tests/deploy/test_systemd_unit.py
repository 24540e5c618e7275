"""The systemd unit: valid, closed as far as the page says, and a relay lives under its restrictions."""

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from crystal_relay.client.http import HttpStore
from tests.support.relay_server import enrolled
from tests.support.s3_servers import S3Server
from tests.support.systemd_unit import Unit, complaints, exposure
from tests.support.unit_sandbox import NOBODY, sandboxed

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / "deploy" / "systemd"
UNIT = FOLDER / "crystal-relay.service"
PAGE = PROJECT / "deploy" / "README.md"
EXPOSURE_MAX = 1.5
START_SECONDS_MAX = 90.0

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give a process another user and mounts of its own"
)


@needs_systemd
def test_the_unit_is_valid(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    # The program is not installed here: another one stands in its place.
    text = UNIT.read_text(encoding="utf-8")
    assert text.count("/opt/crystal-relay/bin/crystal-relay") == 1
    unit.write_text(text.replace("/opt/crystal-relay/bin/crystal-relay", "/usr/bin/env"))
    assert complaints(unit) == ""


@needs_systemd
def test_a_fault_in_a_unit_is_seen(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text("[Service]\nExecStart=/usr/bin/env\nProtectSytem=strict\n")
    assert "ProtectSytem" in complaints(unit)


@needs_systemd
def test_the_unit_is_as_closed_as_the_page_says() -> None:
    figure = exposure(UNIT)
    assert figure <= EXPOSURE_MAX
    (said,) = re.findall(r"overall exposure level of \*\*([0-9.]+)\*\*", PAGE.read_text(encoding="utf-8"))
    assert float(said) == figure


@needs_systemd
@pytest.mark.parametrize("drop_in", ["s3.conf"])
def test_the_drop_ins_stay_below_the_limit_too(drop_in: str, tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8") + "\n" + (FOLDER / drop_in).read_text(encoding="utf-8"))
    assert exposure(unit) <= EXPOSURE_MAX


def test_the_unit_holds_no_secret_and_reads_them_from_a_file() -> None:
    unit = Unit(UNIT)
    assert unit.all("EnvironmentFile") == ["-/etc/crystal-relay/relay.env"]
    assert not re.search(r"(TOKEN|SECRET|KEY_ID)\w*=", UNIT.read_text(encoding="utf-8"))
    example = (FOLDER / "relay.env.example").read_text(encoding="utf-8")
    assert re.findall(r"(?:TOKEN|SECRET_ACCESS_KEY|KEY_ID)=(\S+)", example) == []


class _Sandboxed:
    """A relay under the unit, with what it has said."""

    def __init__(self, url: str, pid: int, state: Path, enroll_token: str) -> None:
        self.url, self.pid, self.state, self.enroll_token = url, pid, state, enroll_token

    def status(self) -> dict[str, str]:
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@contextlib.contextmanager
def running_under_the_unit(**settings: str) -> Generator[_Sandboxed]:
    # Not under pytest's own folder, which nobody but its owner may enter.
    with tempfile.TemporaryDirectory(prefix="crystal-unit-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        state = folder / "state"
        state.mkdir(mode=0o700)
        os.chown(state, NOBODY, NOBODY)
        enroll_token = secrets.token_hex(32)
        ready = state / "ready"
        environment = Unit(UNIT).environment() | {
            "CRYSTAL_RELAY_STORE": (state / "store").as_uri(),
            "CRYSTAL_RELAY_ENROLL_TOKEN": enroll_token,
            "TMPDIR": str(folder / "tmp"),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(PROJECT),
        }
        serve = ("-m", "crystal_relay", "serve", "--port", "0", "--ready-file", str(ready))
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                sandboxed(UNIT, state, sys.executable, *serve),
                cwd=PROJECT,
                env=environment | settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while not ready.exists():
                said = (folder / "log").read_text(errors="replace")
                assert process.poll() is None, said
                assert time.monotonic() < deadline, said
                time.sleep(0.05)
            yield _Sandboxed(json.loads(ready.read_text())["url"], process.pid, state, enroll_token)
            process.terminate()
            assert process.wait(timeout=20) == 0, (folder / "log").read_text(errors="replace")
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def relay() -> Generator[_Sandboxed]:
    with running_under_the_unit() as running:
        yield running


@needs_root
@needs_systemd
async def test_a_relay_serves_under_the_units_restrictions(relay: _Sandboxed) -> None:
    await _use(relay)


@needs_root
@needs_systemd
async def test_so_does_one_over_a_bucket(moto_server: S3Server) -> None:
    mine = moto_server.with_new_bucket()
    where = {
        "CRYSTAL_RELAY_STORE": f"s3://{mine.bucket}/relay",
        "CRYSTAL_RELAY_S3_ENDPOINT": mine.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with running_under_the_unit(**where, **mine.environment) as relay:
        await _use(relay)


async def _use(relay: _Sandboxed) -> None:
    member = await enrolled(relay.url, enroll_token=relay.enroll_token)
    store: HttpStore = member.store(relay.url)
    try:
        small, large = sorted(f"{member.prefix}blob/{secrets.token_hex(16)}" for _ in range(2))
        body = secrets.token_bytes(8 * 1024 * 1024)
        await store.put_new(small, b"sealed")
        await store.put_new(large, body)
        assert await (await store.get(small)).read() == b"sealed"
        assert await (await store.get(large)).read() == body
        await store.delete(large)
        assert [entry.key for entry in (await store.list(member.prefix)).entries] == [small]
    finally:
        await store.aclose()


@needs_root
@needs_systemd
def test_the_restrictions_are_really_in_force(relay: _Sandboxed) -> None:
    status = relay.status()
    assert set(status["Uid"].split()) == {str(NOBODY)}
    assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    mounts = Path(f"/proc/{relay.pid}/mountinfo").read_text(encoding="utf-8").splitlines()
    options = {line.split()[4]: line.split()[5].split(",") for line in mounts}
    assert "ro" in options["/"]
    assert "rw" in options[str(relay.state)]


@needs_root
@needs_systemd
@pytest.mark.parametrize(
    "attempt",
    [
        "open('/etc/crystal-probe', 'w')",
        "open('/var/lib/crystal-probe', 'w')",
        "import os; os.listdir('/root/.ssh')",
        "import ctypes\nif ctypes.CDLL(None).mount(b'a', b'/tmp', b'tmpfs', 0, None): raise OSError(1)",
        "import os; os.sched_setaffinity(0, {0})",
        "open('/proc/1/status')",
        "open('/proc/meminfo')",
        "import os, shutil\nmine = os.environ['STATE'] + '/mine'\nshutil.copy('/usr/bin/true', mine)\nos.execv(mine, ['mine'])",
        "import ctypes\nif ctypes.CDLL(None).unshare(0x10000000): raise OSError(1)",
        "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)",
        "import os\nif os.stat('/dev/null').st_rdev and os.path.exists('/dev/vda'): raise SystemExit(0)\nraise OSError(2)",
    ],
)
def test_what_the_unit_forbids_fails_in_there(attempt: str) -> None:
    """So that the relay above was not simply free."""
    with tempfile.TemporaryDirectory(prefix="crystal-unit-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        state = folder / "state"
        state.mkdir()
        os.chown(state, NOBODY, NOBODY)
        done = subprocess.run(
            sandboxed(UNIT, state, sys.executable, "-I", "-c", attempt),
            cwd=PROJECT,
            env=os.environ | {"STATE": str(state)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert re.search(r"(PermissionError|OSError|FileNotFoundError): \[?", done.stderr), done.stderr
