"""Relay processes over one bucket are restarted one after the other behind the proxies that we ship, and no client notices."""

import asyncio
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
import yaml

from crystal_relay.client.http import HttpStore
from crystal_relay.errors import RelayError
from crystal_relay.server.settings import DRAIN_SECONDS, KEEP_ALIVE_SECONDS
from crystal_relay.tokens import recovery_hash, token_hash
from tests.support.caddy import RunningCaddy, running_caddy
from tests.support.nginx import CONFIGURATION, NGINX, RunningNginx, running_nginx
from tests.support.relay_process import RelayProcess
from tests.support.relay_server import Member
from tests.support.s3_servers import S3Server

pytestmark = pytest.mark.timeout(900)

RESTARTS = int(os.environ.get("CRYSTAL_TEST_RESTARTS", "2"))
"""Ten take some two minutes for each proxy: CRYSTAL_TEST_RESTARTS=10."""
WRITERS = 6
WAITERS = 4
TRAEFIK = CONFIGURATION.parents[1] / "traefik" / "compose.yaml"

Proxy = Callable[..., AbstractContextManager[RunningCaddy | RunningNginx]]


@pytest.fixture
def pair(rgw_server: S3Server, tmp_path: Path) -> Generator[list[RelayProcess]]:
    """Two processes on one bucket, with the draining that an operator gets."""
    server = rgw_server.with_new_bucket()
    with ExitStack() as stack:
        pair = [
            RelayProcess(
                tmp_path / name,
                enroll_token="enrolment-token-of-the-tests",
                options=("--store", f"s3://{server.bucket}/relay", "--s3-endpoint", server.endpoint),
                environment={
                    **server.environment,
                    "CRYSTAL_RELAY_DRAIN_SECONDS": str(DRAIN_SECONDS),
                    "CRYSTAL_RELAY_TRUSTED_PROXY": "127.0.0.1",
                },
            )
            for name in ("one", "other")
        ]
        for relay in pair:
            stack.callback(relay.kill)
            relay.start()
        yield pair


class Load:
    """Devices that write, read, list and wait, and try nothing twice."""

    def __init__(self, store: HttpStore, member: Member) -> None:
        self._store = store
        self._member = member
        self.failed: list[str] = []
        self.written: list[str] = []
        self.done = 0
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        writers = [self._repeat(self._write) for _ in range(WRITERS)]
        waiters = [self._repeat(self._wait) for _ in range(WAITERS)]
        self._tasks = [asyncio.create_task(each) for each in (*writers, *waiters)]

    async def more(self) -> None:
        """Returns when each kind of request has gone through since the call, or one has failed."""
        target = self.done + 4 * (WRITERS + WAITERS)
        while self.done < target and not self.failed:  # noqa: ASYNC110  counted by the tasks
            await asyncio.sleep(0.05)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, request: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await request()
            except RelayError as error:
                self.failed.append(f"{error.code}: {error}")
            self.done += 1

    async def _write(self) -> None:
        key = f"{self._member.prefix}blob/{secrets.token_hex(16)}"
        body = secrets.token_bytes(20_000)
        await self._store.put_new(key, body)
        self.written.append(key)
        assert await (await self._store.get(key)).read() == body
        await self._store.list(self._member.prefix, limit=10)

    async def _wait(self) -> None:
        prefix = f"{self._member.prefix}mirror/"  # nothing is written there
        token = await self._store.wait(prefix, token=None, timeout=0)
        await self._store.wait(prefix, token=token, timeout=30)


async def restarted_under_load(store: HttpStore, member: Member, pair: list[RelayProcess]) -> None:
    await store.create_vault(
        enroll_token="enrolment-token-of-the-tests",
        recovery_hash=recovery_hash(member.recovery),
        device=member.device,
        token_hash=token_hash(member.token),
        proof=member.proof(store.host),
    )
    load = Load(store, member)
    load.begin()
    try:
        for number in range(RESTARTS):
            relay = pair[number % 2]
            assert await asyncio.to_thread(relay.stop) == 0
            await asyncio.to_thread(relay.start)
            await load.more()
    finally:
        await load.end()
    assert load.failed == []
    kept: set[str] = set()
    after = f"{member.prefix}blob/"
    while True:
        page = await store.list(f"{member.prefix}blob/", after=after)
        kept |= {entry.key for entry in page.entries}
        if not page.more:
            break
        after = page.entries[-1].key
    assert set(load.written) <= kept


@pytest.mark.parametrize(
    "proxy",
    [
        pytest.param(running_caddy, id="caddy"),
        pytest.param(
            running_nginx,
            id="nginx",
            marks=pytest.mark.skipif(
                NGINX is None, reason="nginx is not installed (apt-get install nginx-light)"
            ),
        ),
    ],
)
async def test_restarts_one_after_the_other_show_no_client_an_error(
    pair: list[RelayProcess], tmp_path: Path, proxy: Proxy
) -> None:
    member = Member()
    with proxy(tmp_path / "proxy", *(relay.url for relay in pair)) as running:
        store = HttpStore(
            running.url, vault=member.vault, token=member.token, transport=running.transport(), direct=False
        )
        try:
            await restarted_under_load(store, member, pair)
        finally:
            await store.aclose()


def test_the_numbers_for_traefik_fit_the_relay() -> None:
    text = TRAEFIK.read_text(encoding="utf-8")
    labels = yaml.safe_load(text)["services"]["relay"]["labels"]
    check = "traefik.http.services.crystal.loadbalancer.healthcheck."
    assert labels[f"{check}path"] == "/health/ready"
    assert float(labels[f"{check}interval"].removesuffix("s")) < DRAIN_SECONDS / 2
    (idle,) = re.findall(r"idleConnTimeout=(\d+)s", text)
    assert int(idle) < KEEP_ALIVE_SECONDS
