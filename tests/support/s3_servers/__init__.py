"""Real S3 servers on 127.0.0.1, for tests (and benchmarks) of the relay's S3 store.

    with running_moto() as server:                  # also running_rclone, running_rgw, running_swift
        server.client().put_object(Bucket=server.bucket, Key="a", Body=b"x")

Each `running_*` starts a server of its own, waits until it serves, makes a bucket, and leaves nothing behind: no process and
no file, not even when the test run is killed. Where starting is dear, tests take the fixtures of `tests/conftest.py`
(`rgw_server`, `swift_server`, …): one server for all workers of a run. There each test works in a bucket of its own
(`server.with_new_bucket()`) or under a prefix of its own.

A server that is not installed here skips the test, and the reason names what to install.
"""

from tests.support.s3_servers.kept import running_moto, running_rclone, running_rgw, running_swift
from tests.support.s3_servers.server import S3Server

__all__ = ["S3Server", "running_moto", "running_rclone", "running_rgw", "running_swift"]
