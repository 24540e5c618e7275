"""rclone's `serve s3`: signatures count, conditions are ignored without a word. What a cheap stand-in for S3 is like.

Nor is overwriting atomic: who reads a key while it is written again may be answered 500, or lose the connection, or get a body
cut short or mixed. None of its options changes that.
"""

import contextlib
import secrets
import sys
from collections.abc import Generator
from pathlib import Path

from tests.support.s3_servers.daemons import accepts, daemons, free_port
from tests.support.s3_servers.server import S3Server


@contextlib.contextmanager
def rclone() -> Generator[S3Server]:
    """An rclone server over a temporary directory."""
    with daemons("rclone") as running:
        port, access, secret = free_port(), secrets.token_hex(10), secrets.token_hex(20)
        files = running.directory / "files"
        files.mkdir()
        running.start(
            "rclone",
            *(Path(sys.executable).with_name("rclone"), "serve", "s3", files, "--addr", f"127.0.0.1:{port}"),
            # Nobody's own configuration.
            *("--config", running.directory / "rclone.conf"),
            extra={"RCLONE_AUTH_KEY": f'"{access},{secret}"'},
        )
        running.until("answer from rclone", lambda: accepts(port))
        yield S3Server("rclone", f"http://127.0.0.1:{port}", access, secret, "").with_new_bucket()
