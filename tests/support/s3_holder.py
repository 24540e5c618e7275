"""A process that opens a bucket as a relay does, says so on stdout, and holds it until it is killed or stdin ends.

`python -m tests.support.s3_holder ENDPOINT BUCKET`, with the keys in the environment. Prints `open`, or the error's code.
"""

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from crystal_relay.errors import RelayError
from crystal_relay.s3 import open_s3_store, parse_s3_address
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import QUICK_CLAIM

PROJECT = Path(__file__).resolve().parents[2]


@contextmanager
def holder_of(server: S3Server, environment: dict[str, str]) -> Generator[subprocess.Popen[str]]:
    """Such a process, once it holds the bucket. It is killed at the end, if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.s3_holder", server.endpoint, server.bucket],
        cwd=PROJECT,
        env=environment | server.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.kill()
        process.communicate()


async def hold(endpoint: str, bucket: str) -> None:
    try:
        store = await open_s3_store(
            parse_s3_address(f"s3://{bucket}", endpoint), announce=lambda _: None, claim_times=QUICK_CLAIM
        )
    except RelayError as error:
        _say(error.code)
        return
    _say("open")
    await asyncio.to_thread(sys.stdin.read)
    await store.aclose()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(hold(*sys.argv[1:]))
