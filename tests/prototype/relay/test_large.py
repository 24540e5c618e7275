"""Drops up to 100 MiB pass through a relay without staying in its memory; beyond that it says 413."""

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from crystal_prototype.relay.names import BLOB_BYTES_MAX, Role
from crystal_relay.limits import MIB
from crystal_relay.local import LocalStore
from tests.prototype.device import V1Device, let_in
from tests.support.relay_process import running_relay

GROWTH_BYTES_MAX = 40 * MIB
"""Of the process, over a drop and a pickup of 100 MiB."""
_BLOCK = random.Random(5).randbytes(MIB)


async def body(size: int) -> AsyncGenerator[bytes]:
    """So many bytes, a mebibyte at a time."""
    for number in range(0, size, MIB):
        yield (b"%010d" % number + _BLOCK[10:])[: size - number]


async def digest_of(pieces: AsyncGenerator[bytes]) -> str:
    digest = hashlib.sha256()
    async for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def reset_peak(pid: int) -> int:
    """Begin anew with the size that it has now, and return that."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak_bytes(pid)


def wait_until_empty(directory: Path) -> None:
    """What a relay deletes goes a little after its answer."""
    deadline = time.monotonic() + 10
    while any(path.is_file() for path in directory.rglob("*")):
        assert time.monotonic() < deadline, "a file is left"
        time.sleep(0.05)


def peak_bytes(pid: int) -> int:
    """The largest resident size since the peak was reset."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are read from /proc")
async def test_a_hundred_mebibytes_go_in_and_out_in_little_memory(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "relay")
    core_token, _ = await let_in(store, "cc-core", Role.CORE)
    node_token, _ = await let_in(store, "cc-node", Role.NODE)
    await store.aclose()
    with running_relay(tmp_path / "relay", options=("--v1",)) as relay:
        async with (
            V1Device(relay.url, core_token, "core") as core,
            V1Device(relay.url, node_token, "n") as node,
        ):
            await core.drop("files", b"warm")
            await node.poll("files")
            before = reset_peak(relay.pid)
            sent = await core.http.post(
                "/drop/files",
                content=body(BLOB_BYTES_MAX),
                headers={"Content-Length": str(BLOB_BYTES_MAX)},
            )
            assert sent.status_code == 200, sent.text
            name = sent.json()["id"]
            assert [blob["size"] for blob in await node.listed("files")] == [BLOB_BYTES_MAX]
            async with node.http.stream("GET", f"/pickup/files/{name}") as picked:
                assert picked.headers["content-length"] == str(BLOB_BYTES_MAX)
                got = await digest_of(picked.aiter_raw())  # type: ignore[arg-type]
            assert got == await digest_of(body(BLOB_BYTES_MAX))
            growth = peak_bytes(relay.pid) - before
            assert growth < GROWTH_BYTES_MAX, f"grew by {growth / MIB:.0f} MiB"
            # Again, as after a lost reply: received, known, and not kept twice.
            again = await core.http.post(
                "/drop/files",
                content=body(BLOB_BYTES_MAX),
                headers={"Content-Length": str(BLOB_BYTES_MAX)},
            )
            assert again.json()["id"] == name
            await node.confirm("files", name)
            assert await node.listed("files") == []
        await asyncio.to_thread(wait_until_empty, tmp_path / "relay" / "files")
