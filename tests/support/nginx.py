"""A real nginx on a loopback port: with the configuration that we ship and a certificate made here, or with another one."""

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.authority import Authority
from tests.support.caddy import free_ports

PROJECT = Path(__file__).resolve().parents[2]
CONFIGURATION = PROJECT / "deploy" / "nginx" / "crystal-relay.conf"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
_MAIN = """
daemon off;
worker_processes 1;
{user}
pid {directory}/nginx.pid;
error_log {directory}/error.log {severity};
events {{ worker_connections 512; }}
http {{
	client_body_temp_path {directory}/body;
	proxy_temp_path {directory}/proxy;
	fastcgi_temp_path {directory}/fastcgi;
	uwsgi_temp_path {directory}/uwsgi;
	scgi_temp_path {directory}/scgi;
	include {directory}/site.conf;
}}
"""


@dataclass(frozen=True)
class RunningNginx:
    """Where it listens, and what a client has to trust."""

    url: str
    authority: Path
    log: Path

    def transport(self) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(verify=ssl.create_default_context(cafile=str(self.authority)))


@contextlib.contextmanager
def running_nginx(directory: Path, *upstreams: str) -> Generator[RunningNginx]:
    """nginx before two relays (http URLs), as a process of its own; stopped at the end."""
    assert NGINX is not None, "nginx is not installed"
    (port,) = free_ports("127.0.0.1", 1)
    directory.mkdir(parents=True, exist_ok=True)
    authority = Authority.made(directory)
    certificate = authority.certificate("127.0.0.1")
    text = CONFIGURATION.read_text(encoding="utf-8")
    one, other = (each.removeprefix("http://") for each in upstreams)
    for shipped, here in (
        ("server 127.0.0.1:18791 ", f"server {one} "),
        ("server 127.0.0.1:18792 ", f"server {other} "),
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("server_name relay.example.org;", "server_name 127.0.0.1;"),
        ("/etc/nginx/relay.example.org.crt", str(certificate)),
        ("/etc/nginx/relay.example.org.key", str(certificate)),
    ):
        assert text.count(shipped) == 1, shipped
        text = text.replace(shipped, here)
    with nginx_process(directory, text, port) as log:
        yield RunningNginx(f"https://127.0.0.1:{port}", authority.file, log)


@contextlib.contextmanager
def nginx_process(directory: Path, site: str, port: int, *, severity: str = "info") -> Generator[Path]:
    """nginx with `site` in its `http` block; `site` listens on this port of the loopback. Yields the path of its error log."""
    assert NGINX is not None, "nginx is not installed"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "site.conf").write_text(site)
    main, log = directory / "nginx.conf", directory / "error.log"
    # As root its workers would become a user who may not exist here.
    user = "user root;" if os.geteuid() == 0 else ""
    main.write_text(_MAIN.format(directory=directory, user=user, severity=severity))
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            [NGINX, "-p", str(directory), "-c", str(main), "-e", str(log)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"nginx did not start:\n{(directory / 'output').read_text()}")
            time.sleep(0.05)
        yield log
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
