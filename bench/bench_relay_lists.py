"""`crystal-relay vaults list` and `tokens list` on a bucket with ten thousand of each: whole processes, on a real S3 server.

The first list reads every record; later ones read those that have come since (`server/overview`).
"""

import json
import resource
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from bench.harness import Row, value_at_most
from crystal_node.base.settings import child_environment
from tests.support.s3_servers import S3Server, running_moto, running_rgw

COUNT = 10_000
OBJECTS = 3
"""Of each vault."""
THREADS = 16
LISTS = 3
SECONDS = 3.0


def run(quick: bool) -> list[Row]:
    """Rows for the result table: seconds of the first list and of later ones (the median)."""
    count = 200 if quick else COUNT
    with _server() as server:
        _fill(server, count)
        rows: list[Row] = []
        for name, kind in (("vaults", "vaults"), ("tokens", "tokens")):
            times = [_listed(server, name, kind, count) for _ in range(1 + LISTS)]
            later = sorted(times[1:])[LISTS // 2]
            rows += [
                Row(
                    name=f"first list of {count:,} {name}",
                    value=times[0][0],
                    unit="s",
                    note=f"{times[0][1]:.1f} s of processor time",
                ),
                Row(
                    name=f"list of {count:,} {name}",
                    value=later[0],
                    unit="s",
                    target=value_at_most(SECONDS),
                    note=f"{later[1]:.1f} s of processor time",
                ),
            ]
    return rows


@contextmanager
def _server() -> Generator[S3Server]:
    """Ceph where it is installed: moto goes through all its objects for each list."""
    with running_rgw() if shutil.which("radosgw") else running_moto() as server:
        yield server


def _fill(server: S3Server, count: int) -> None:
    """What relays would have written."""
    client = server.client(connections=THREADS)
    objects: list[tuple[str, object]] = []
    for number in range(count):
        vault, device, token = secrets.token_hex(16), secrets.token_hex(16), secrets.token_hex(32)
        origin = {"token": token[:12], "created": 1_750_000_000 + number, "quota_bytes": 0}
        record = {"label": f"friend {number}", "created": 1_750_000_000 + number, "uses": 1}
        objects += [
            (f"r/vault/{vault}/record", {"version": 1}),
            (f"r/vault/{vault}/origin", origin),
            (f"r/vault/{vault}/token/{device}/{secrets.token_hex(32)}", {"version": 1}),
            (f"r/enrollment/{token}", record),
            (f"r/enrolled/{token}/000000", {"vault": vault}),
            *((f"v/{vault}/devlog/{each}", {}) for each in range(OBJECTS)),
        ]

    def put(each: tuple[str, object]) -> None:
        client.put_object(Bucket=server.bucket, Key=f"relay/{each[0]}", Body=json.dumps(each[1]).encode())

    with ThreadPoolExecutor(THREADS) as threads:
        for _ in threads.map(put, objects):
            pass


def _listed(server: S3Server, words: str, kind: str, count: int) -> tuple[float, float]:
    """Seconds of one command, and of processor time that it took."""
    began, used = time.perf_counter(), _used()
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "crystal_relay", words, "list", "--json"),
            *("--store", f"s3://{server.bucket}/relay", "--s3-endpoint", server.endpoint),
        ],
        env=child_environment(server.environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    seconds = time.perf_counter() - began
    assert len(json.loads(ended.stdout)[kind]) == count
    return seconds, _used() - used


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
