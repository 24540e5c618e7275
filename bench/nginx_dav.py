"""nginx with its WebDAV module over a directory: it suits people who only need a place for small files.

It answers when the operating system has the bytes; nothing is flushed to the disk.
"""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

from tests.support.caddy import free_ports
from tests.support.nginx import NGINX

START_SECONDS_MAX = 30.0
_CONFIGURATION = """
daemon off;
worker_processes 1;
{user}
pid {directory}/nginx.pid;
error_log {directory}/error.log crit;
events {{ worker_connections 512; }}
http {{
	access_log off;
	keepalive_requests 100000000;
	client_body_temp_path {directory}/body;
	proxy_temp_path {directory}/proxy;
	fastcgi_temp_path {directory}/fastcgi;
	uwsgi_temp_path {directory}/uwsgi;
	scgi_temp_path {directory}/scgi;
	server {{
		listen 127.0.0.1:{port};
		root {directory}/files;
		dav_methods PUT;
		create_full_put_path on;
	}}
}}
"""


def has_nginx_dav() -> bool:
    """Whether an nginx with the module is installed."""
    if NGINX is None:
        return False
    shown = subprocess.run([NGINX, "-V"], capture_output=True, text=True, check=False)
    return "http_dav_module" in shown.stderr


@contextlib.contextmanager
def nginx_dav(directory: Path) -> Generator[str]:
    """Its address, as a process."""
    assert NGINX is not None, "nginx is not installed"
    (port,) = free_ports("127.0.0.1", 1)
    (directory / "files").mkdir(parents=True)
    user = "user root;" if os.geteuid() == 0 else ""  # else its worker could not write here
    main = directory / "nginx.conf"
    main.write_text(_CONFIGURATION.format(directory=directory, port=port, user=user))
    process = subprocess.Popen(
        [NGINX, "-p", str(directory), "-c", str(main), "-e", str(directory / "error.log")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((directory / "error.log").read_text())
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
