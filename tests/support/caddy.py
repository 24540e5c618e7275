"""A real Caddy with the configuration that we ship, on loopback ports, with certificates of its own authority."""

import contextlib
import os
import random
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.s3_servers.daemons import PORTS

PROJECT = Path(__file__).resolve().parents[2]
CADDYFILE = PROJECT / "deploy" / "caddy" / "Caddyfile"
CADDY = Path(sys.executable).with_name("caddy")
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0


@dataclass(frozen=True)
class RunningCaddy:
    """Where it listens, and what a client has to trust."""

    url: str
    plain_url: str
    authority: Path
    log: Path

    def tls(self) -> ssl.SSLContext:
        """A context that trusts this Caddy and nothing else."""
        return ssl.create_default_context(cafile=str(self.authority))

    def transport(self) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(verify=self.tls())


def caddy_environment(directory: Path, site: str, upstream: str, *, ports: tuple[int, int]) -> dict[str, str]:
    """What the Caddyfile asks the environment for, and places of Caddy's own under `directory`."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "XDG_DATA_HOME": str(directory / "data"),
        "XDG_CONFIG_HOME": str(directory / "config"),
        "CRYSTAL_RELAY_SITE": site,
        "CRYSTAL_RELAY_UPSTREAM": upstream,
        "CADDY_HTTP_PORT": str(ports[0]),
        "CADDY_HTTPS_PORT": str(ports[1]),
    }


@contextlib.contextmanager
def running_caddy(directory: Path, *upstreams: str, host: str = "127.0.0.1") -> Generator[RunningCaddy]:
    """Caddy before the relay at `upstreams` (http URLs), as a process of its own; stopped at the end."""
    plain, secure = free_ports(host, 2)
    directory.mkdir(parents=True, exist_ok=True)
    caddy = RunningCaddy(
        f"https://{host}:{secure}",
        f"http://{host}:{plain}",
        directory / "data" / "caddy" / "pki" / "authorities" / "local" / "root.crt",
        directory / "caddy.log",
    )
    configuration = directory / "Caddyfile"
    # The one change: a listener on this address only, where the shipped file has all of a machine's.
    text = CADDYFILE.read_text(encoding="utf-8")
    configuration.write_text(text.replace("{\n\tadmin off\n", f"{{\n\tdefault_bind {host}\n\tadmin off\n", 1))
    with caddy.log.open("wb") as log:
        process = subprocess.Popen(
            [str(CADDY), "run", "--config", str(configuration), "--adapter", "caddyfile"],
            env=caddy_environment(
                directory,
                caddy.url,
                " ".join(each.removeprefix("http://") for each in upstreams),
                ports=(plain, secure),
            ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        _wait_until_it_serves(caddy, process, (host, secure))
        yield caddy
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(host: str, count: int) -> list[int]:
    """Ports that are free now, all different, and that no outgoing connection is given."""
    with contextlib.ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = random.choice(PORTS)
            with contextlib.suppress(OSError):
                held.enter_context(socket.socket()).bind((host, port))
                found.append(port)
        return found


def _wait_until_it_serves(
    caddy: RunningCaddy, process: subprocess.Popen[bytes], address: tuple[str, int]
) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        # The certificate is made after the port is opened.
        with (
            contextlib.suppress(OSError),
            socket.create_connection(address, timeout=5) as plain,
            caddy.tls().wrap_socket(plain, server_hostname=address[0]),
        ):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"Caddy did not start:\n{caddy.log.read_text(errors='replace')}")
        time.sleep(0.05)
