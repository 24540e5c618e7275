"""The recipe for a tunnel: a relay that only its own machine reaches, and a device that reaches it by a real ssh.

The page (docs/two-machines.md) holds the line that is run here, but for the keys and the port of this sshd.
"""

import getpass
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.machine import Machine, transcript
from tests.support.pairing import inviting, joining
from tests.support.relay_process import RelayProcess, running_relay
from tests.support.s3_servers.daemons import free_port

pytestmark = pytest.mark.timeout(400)
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "two-machines.md"
SECONDS_MAX = 60.0


@pytest.fixture
def relay(tmp_path: Path) -> Generator[RelayProcess]:
    with running_relay(tmp_path / "relay") as running:
        yield running


@pytest.fixture
def tunnel(relay: RelayProcess, tmp_path: Path) -> Generator[str]:
    """The relay's address at this end of the page's own command."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("no sshd is installed (openssh-server)")
    if os.geteuid() != 0:
        pytest.skip("sshd wants /run/sshd, which only root can make")
    there, here = free_port(), free_port()
    for name in ("host", "person"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)],
            check=True,
            timeout=60,
        )
    keys = tmp_path / "authorized_keys"
    keys.write_text((tmp_path / "person.pub").read_text())
    settings = tmp_path / "sshd_config"
    settings.write_text(
        f"ListenAddress 127.0.0.1\nPort {there}\nHostKey {tmp_path / 'host'}\nAuthorizedKeysFile {keys}\n"
        "PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    (line,) = re.findall(r"^ssh -N .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    words = [
        word.replace("18791:127.0.0.1:18791", f"{here}:127.0.0.1:{relay.url.rpartition(':')[2]}").replace(
            "you@relay.example.org", f"{getpass.getuser()}@127.0.0.1"
        )
        for word in shlex.split(line)
    ]
    own = ["-p", str(there), "-i", str(tmp_path / "person"), "-F", "none", "-o", "StrictHostKeyChecking=no"]
    own += ["-o", f"UserKnownHostsFile={tmp_path / 'known'}"]
    with (tmp_path / "said").open("wb") as said:
        daemon = subprocess.Popen([SSHD, "-D", "-e", "-f", str(settings)], stderr=said)
        ssh = None
        try:
            deadline = time.monotonic() + SECONDS_MAX
            while True:
                if ssh is None or ssh.poll() is not None:  # sshd does not listen yet
                    ssh = subprocess.Popen(
                        [words[0], *own, *words[1:]], stderr=said, stdin=subprocess.DEVNULL
                    )
                time.sleep(0.2)
                found = subprocess.run(
                    ["curl", "-s", "-m", "5", f"http://127.0.0.1:{here}/health"],
                    capture_output=True,
                    check=False,
                )
                if b"ok" in found.stdout:
                    break
                assert time.monotonic() < deadline, (tmp_path / "said").read_text()
            yield f"http://127.0.0.1:{here}"
        finally:
            for process in (ssh, daemon):
                if process is not None:
                    process.terminate()
                    process.wait(SECONDS_MAX)


def test_two_machines_meet_behind_a_tunnel(tunnel: str, relay: RelayProcess, tmp_path: Path) -> None:
    machines: list[Machine] = []
    for name in ("first", "other"):
        (tmp_path / name).mkdir()
        machines.append(Machine(tmp_path / name))
    first, other = machines
    transcript(first, "The lighthouse was painted.")
    first.extra["CRYSTAL_RELAY_ENROLL_TOKEN"] = relay.enroll_token
    first.run("up", "--relay", tunnel, "--enroll-token", relay.enroll_token, "--no-service", "--yes")
    first.run("sync")
    with inviting(first) as inviter, joining(other, inviter.code()) as newcomer:
        inviter.type(newcomer.event("digits")["digits"])
        assert inviter.end() == newcomer.end() == 0
    other.run("sync")
    assert other.found("lighthouse") == ["The lighthouse was painted."]
    assert other.call("status", "--json").json["relay"] == tunnel
