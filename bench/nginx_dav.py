"""nginx with its WebDAV module over a directory: it suits people who only need a place for small files.

It answers when the operating system has the bytes; nothing is flushed to the disk.
"""

import contextlib
import subprocess
from collections.abc import Generator
from pathlib import Path

from tests.support.caddy import free_ports
from tests.support.nginx import NGINX, nginx_process

_SITE = """
access_log off;
keepalive_requests 100000000;
server {{
	listen 127.0.0.1:{port};
	root {directory}/files;
	dav_methods PUT;
	create_full_put_path on;
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
    (port,) = free_ports("127.0.0.1", 1)
    (directory / "files").mkdir(parents=True)
    site = _SITE.format(directory=directory, port=port)
    with nginx_process(directory, site, port, severity="crit"):
        yield f"http://127.0.0.1:{port}"
