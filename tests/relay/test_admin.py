"""The socket in a relay's directory: who can use it, what it answers, and what is left of it."""

import asyncio
import contextlib
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
import pytest_asyncio

from crystal_relay.errors import BadRequest, NotFound, StoreUnavailable
from crystal_relay.memory import MemoryStore
from crystal_relay.server.admin import (
    LINE_BYTES_MAX,
    SOCKET_NAME,
    RemoteOperator,
    admin_socket,
    answers,
)
from crystal_relay.server.operator import Operator
from crystal_relay.unix_socket import PATH_BYTES_MAX
from tests.support.relay_process import RelayProcess

VAULT = "ab" * 16
GRACE_SECONDS = 7 * 86_400
NOBODY = 65534


@pytest_asyncio.fixture
async def store() -> AsyncGenerator[MemoryStore]:
    store = MemoryStore()
    await store.put_new(f"r/vault/{VAULT}/record", b"{}")
    await store.put_new(f"v/{VAULT}/devlog/0", b"12345")
    yield store
    await store.aclose()


@pytest_asyncio.fixture
async def directory(tmp_path: Path, store: MemoryStore) -> AsyncGenerator[Path]:
    async with admin_socket(tmp_path, Operator(store)):
        yield tmp_path


@pytest.fixture
def open_directory() -> Generator[Path]:
    """A directory that every user of the machine may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def say(directory: Path, line: bytes) -> list[object]:
    """Send bytes as they are; the lines that come back until the connection is closed."""
    reader, writer = await asyncio.open_unix_connection(str(directory / SOCKET_NAME))
    with contextlib.suppress(ConnectionError):
        writer.write(line)
        await writer.drain()
    try:
        answer = await asyncio.wait_for(reader.read(-1), 10)
    except ConnectionError:
        answer = b""
    await _close(writer)
    return [json.loads(each) for each in answer.splitlines()]


async def test_it_does_what_the_operator_does(directory: Path, store: MemoryStore) -> None:
    remote = RemoteOperator(directory)
    here = Operator(store)
    assert [each async for each in remote.vaults()] == [each async for each in here.vaults()]
    assert (await remote.vault(VAULT)).bytes == 5
    state = await remote.drop(VAULT, GRACE_SECONDS)
    assert state.dropped_until is not None
    assert (await here.vault(VAULT)).dropped_until == state.dropped_until
    assert (await remote.restore(VAULT)).dropped_until is None
    made = await remote.enroll("a" * 64, "for Ada")
    assert await remote.enrollments() == [made]
    assert await remote.revoke_enrollment(made.id) == made
    assert (await remote.check()).ok
    assert (await remote.sweep()).failures == 0


async def test_errors_come_back_as_what_they_are(directory: Path) -> None:
    remote = RemoteOperator(directory)
    with pytest.raises(NotFound) as missing:
        await remote.vault("cd" * 16)
    assert "crystal-relay vaults" in missing.value.hint
    with pytest.raises(BadRequest):
        await remote.drop("no id", GRACE_SECONDS)


async def test_only_the_relays_user_may_use_it(directory: Path) -> None:
    mode = (directory / SOCKET_NAME).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_another_user_cannot_connect_even_where_the_directory_is_open(
    open_directory: Path, store: MemoryStore
) -> None:
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(open_directory / SOCKET_NAME)!r})"
    async with admin_socket(open_directory, Operator(store)):
        tried = await asyncio.to_thread(
            subprocess.run,
            ["/usr/bin/env", "python3", "-c", code],
            user=NOBODY,
            group=NOBODY,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/bin:/bin"},
        )
    if "No such file" in tried.stderr and "python3" in tried.stderr:
        pytest.skip("no Python that another user may run")
    assert "PermissionError" in tried.stderr
    assert tried.returncode == 1


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"x\n",
        b"{}\n",
        b"null\n",
        b'{"do": "nothing"}\n',
        b'{"do": "vault"}\n',
        b'{"do": "vault", "vault": 1}\n',
        b'{"do": "vaults", "more": 1}\n',
        b'{"do": "drop", "vault": "x", "grace_seconds": "7"}\n',
        b"\xff\xfe\n",
        b'{"do": "vault", "vault": "' + b"a" * LINE_BYTES_MAX + b'"}\n',
    ],
    ids=range(11),
)
async def test_what_is_not_understood_is_refused_and_harms_nobody(directory: Path, line: bytes) -> None:
    answer = await say(directory, line)
    if len(line) < LINE_BYTES_MAX:  # else the rest of it is cut off, and with it perhaps the answer
        assert len(answer) == 1
        assert isinstance(answer[0], dict)
        assert answer[0]["failed"]["reply"]["error"] == "bad-request"
    assert (await RemoteOperator(directory).vault(VAULT)).entries == 1


async def test_whoever_connects_and_says_nothing_is_let_go(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crystal_relay.server.admin.REQUEST_SECONDS_MAX", 0.1)
    began = time.monotonic()
    assert await say(directory, b'{"do": "va') == []
    assert time.monotonic() - began < 5


async def test_more_connections_than_are_served_are_refused(directory: Path) -> None:
    idle = [await asyncio.open_unix_connection(str(directory / SOCKET_NAME)) for _ in range(8)]
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable):
        await RemoteOperator(directory).check()
    for _, writer in idle:
        await _close(writer)
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(StoreUnavailable):
                await RemoteOperator(directory).check()
                break


async def test_it_ends_with_its_relay_also_for_those_who_are_connected(
    tmp_path: Path, store: MemoryStore
) -> None:
    async with admin_socket(tmp_path, Operator(store)):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME))
        assert await answers(tmp_path)
    assert await asyncio.wait_for(reader.read(), 5) == b""
    await _close(writer)
    assert names_in(tmp_path) == []
    assert not await answers(tmp_path)


async def test_a_relay_that_breaks_off_is_no_success(tmp_path: Path) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b'{"item": {"vault": "x", "dropped_until": 1}}\n')
        writer.close()

    async with await asyncio.start_unix_server(half, str(tmp_path / SOCKET_NAME)):
        with pytest.raises(StoreUnavailable):
            await RemoteOperator(tmp_path).drop(VAULT, GRACE_SECONDS)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a path that long is refused")
@pytest.mark.parametrize("length", [PATH_BYTES_MAX - 1, PATH_BYTES_MAX + 1, 107, 108, 109, 250, 2000])
async def test_a_path_of_any_length_will_do(tmp_path: Path, store: MemoryStore, length: int) -> None:
    directory = tmp_path
    while (left := length - len(str(directory)) - len(SOCKET_NAME) - 2) > 0:
        directory /= "d" * min(200, left)
    directory.mkdir(parents=True, exist_ok=True)
    async with admin_socket(directory, Operator(store)):
        assert (await RemoteOperator(directory).vault(VAULT)).entries == 1
    assert names_in(directory) == []


async def test_a_directory_that_can_hold_no_socket_is_said_and_served(
    tmp_path: Path, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / SOCKET_NAME).mkdir()
    async with admin_socket(tmp_path, Operator(store)):
        assert not await answers(tmp_path)
    assert "operator's commands do not work" in caplog.text
    assert names_in(tmp_path) == [SOCKET_NAME]


@pytest.mark.slow
async def test_a_socket_that_a_killed_relay_left_is_taken_over(tmp_path: Path) -> None:
    relay = RelayProcess(tmp_path / "store")
    try:
        await asyncio.to_thread(relay.start)
        assert await answers(relay.directory)
        await asyncio.to_thread(relay.kill)
        assert (relay.directory / SOCKET_NAME).exists()
        assert not await answers(relay.directory)
        await asyncio.to_thread(relay.start)
        assert (await RemoteOperator(relay.directory).check()).ok
    finally:
        assert await asyncio.to_thread(relay.stop) == 0
    assert not (relay.directory / SOCKET_NAME).exists()
