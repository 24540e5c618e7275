"""A relay in a directory that several processes of one machine share, and which one of them serves."""

import asyncio
import errno
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crystal_relay.client.http import HttpStore
from crystal_relay.embedded import SOCKET_NAME
from crystal_relay.embedded import transport as asking
from crystal_relay.embedded.relay import TOKEN_FILE, EmbeddedRelay, enroll_token
from crystal_relay.errors import BadRequest, InUse, Unauthorized, Unusable
from crystal_relay.tokens import recovery_hash, token_hash
from tests.support.relay_process import running_relay
from tests.support.relay_server import Member, embedded_member

WRITER = """
import asyncio, json, sys
from pathlib import Path
from crystal_relay.client.http import HttpStore
from crystal_relay.embedded.transport import URL, EmbeddedTransport

async def write(directory, vault, token, name, count, opens):
    for turn in range(opens):
        store = HttpStore(URL, vault=vault, token=token, transport=EmbeddedTransport(Path(directory)))
        try:
            for number in range(count):
                await store.put_new(f"v/{vault}/blob/{name}-{turn}-{number}", b"x" * 100)
                print(f"{name}-{turn}-{number}", flush=True)
        finally:
            await store.aclose()

asyncio.run(write(*json.loads(sys.argv[1])))
"""


@asynccontextmanager
async def opened(member: Member, directory: Path) -> AsyncGenerator[HttpStore]:
    store = member.embedded_store(directory)
    try:
        yield store
    finally:
        await store.aclose()


def writer(directory: Path, member: Member, name: str, count: int, opens: int) -> subprocess.Popen[str]:
    told = json.dumps([str(directory), member.vault, member.token, name, count, opens])
    return subprocess.Popen(
        [sys.executable, "-P", "-c", WRITER, told], stdout=subprocess.PIPE, text=True, start_new_session=True
    )


async def names(member: Member, directory: Path) -> set[str]:
    async with opened(member, directory) as store:
        page = await store.list(f"{member.prefix}blob/")
    return {entry.key.rpartition("/")[2] for entry in page.entries}


async def test_what_one_writes_wakes_another_and_outlives_the_one_who_served(tmp_path: Path) -> None:
    member = await embedded_member(tmp_path)
    async with opened(member, tmp_path) as other:
        async with opened(member, tmp_path) as serving:
            await serving.put_new(f"{member.prefix}blob/a", b"1")
            token = await other.wait(f"{member.prefix}blob/", token=None, timeout=0)
            waiting = asyncio.create_task(other.wait(f"{member.prefix}blob/", token=token, timeout=20))
            await asyncio.sleep(0.05)
            await serving.put_new(f"{member.prefix}blob/b", b"2")
            assert await waiting != token
        await other.put_new(f"{member.prefix}blob/c", b"3")
        assert await (await other.get(f"{member.prefix}blob/a")).read() == b"1"
    assert await names(member, tmp_path) == {"a", "b", "c"}


async def test_nobody_but_the_owner_may_use_it_and_a_killed_one_leaves_nothing_in_the_way(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "relay"
    member = await embedded_member(directory)
    with writer(directory, member, "k", 1_000_000, 1) as killed:
        assert killed.stdout is not None
        written = {killed.stdout.readline().strip() for _ in range(20)}
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory / SOCKET_NAME).stat().st_mode) == 0o600
        assert stat.S_IMODE((directory / TOKEN_FILE).stat().st_mode) == 0o600
        os.killpg(killed.pid, signal.SIGKILL)
        written |= {line.strip() for line in killed.stdout if line.endswith("\n")}
    assert (directory / SOCKET_NAME).exists(), "it had no time to remove it"
    found = await names(member, directory)
    assert written <= found
    assert len(found) <= len(written) + 1, "one write may have been on its way"


async def test_processes_that_come_and_go_all_get_their_writes_done(tmp_path: Path) -> None:
    member = await embedded_member(tmp_path)
    writers = [writer(tmp_path, member, name, 10, 5) for name in ("a", "b", "c")]
    outputs = [await asyncio.to_thread(each.communicate) for each in writers]
    written = {line for output, _ in outputs for line in output.split()}
    assert [each.returncode for each in writers] == [0, 0, 0]
    assert len(written) == 150
    assert await names(member, tmp_path) == written


async def test_a_directory_with_a_long_name_works(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    member = await embedded_member(directory)
    async with opened(member, directory) as store:
        await store.put_new(f"{member.prefix}blob/a", b"1")
    assert await names(member, directory) == {"a"}


async def test_a_relay_that_serves_the_network_over_the_directory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "TAKE_OVER_SECONDS_MAX", 0.1)
    member = await embedded_member(tmp_path)
    with running_relay(tmp_path) as relay:
        async with opened(member, tmp_path) as store:
            with pytest.raises(InUse):
                await store.list(member.prefix)
        client = Member().store(relay.url)
        with pytest.raises(Unauthorized):  # what makes vaults at the embedded relay opens no other
            await client.create_vault(
                enroll_token=enroll_token(tmp_path),
                recovery_hash=recovery_hash(b"r" * 32),
                device="ab" * 16,
                token_hash=token_hash(Member().token),
            )
        await client.aclose()
        through = member.store(relay.url)
        assert not (await through.list(member.prefix)).more
        await through.aclose()


async def test_what_was_condemned_is_gone_when_the_one_who_served_ends(tmp_path: Path) -> None:
    member = await embedded_member(tmp_path)
    key = f"{member.prefix}blob/a"
    async with opened(member, tmp_path) as store:
        await store.put_new(key, b"1")
        await store.condemn(keys=[key])
    assert await names(member, tmp_path) == set()


async def test_a_disk_without_sockets_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr("crystal_relay.embedded.relay.listen_at", refuse)
    with pytest.raises(Unusable, match="no socket can be made"):
        await EmbeddedRelay.open(tmp_path)
    monkeypatch.undo()
    await (await EmbeddedRelay.open(tmp_path)).aclose()


def test_a_damaged_token_names_its_file(tmp_path: Path) -> None:
    assert enroll_token(tmp_path) == enroll_token(tmp_path)
    (tmp_path / TOKEN_FILE).write_text("")
    with pytest.raises(BadRequest, match=TOKEN_FILE):
        enroll_token(tmp_path)
