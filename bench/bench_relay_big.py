"""Large bodies through the relay, both ways, beside the lower of the disk in sequence and a bare handler."""

import asyncio
import os
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from bench.harness import Row, ratio_at_least, value_at_most
from bench.relay_load import UNLIMITED, bare_server, headers, on_uvloop, path
from crystal_prototype.relay.names import Role
from crystal_relay.limits import MIB
from crystal_relay.local import LocalStore
from tests.prototype.device import let_in
from tests.support.relay_process import RelayProcess, running_relay
from tests.support.relay_server import Member, enrolled

BLOB_BYTES = 8 * MIB
DROP_BYTES = 100 * 1000 * 1000
"""The largest that the prototype's routes take is 100 MiB; vaults' objects end at 8 MiB."""


@dataclass
class Rates:
    """MB/s of each try."""

    ours: list[float] = field(default_factory=list[float])
    bare: list[float] = field(default_factory=list[float])
    disk: list[float] = field(default_factory=list[float])

    def row(self, name: str) -> Row:
        """Beside the lower of the two."""
        bare, disk = median(self.bare), median(self.disk)
        return Row(
            name=name,
            value=median(self.ours),
            unit="MB/s",
            baseline="a bare handler" if bare < disk else "the disk in sequence",
            baseline_value=min(bare, disk),
            target=ratio_at_least(0.7),
        )


def run(quick: bool) -> list[Row]:
    """Rows for the result table."""
    rounds = 3 if quick else 9
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as text, bare_server() as bare:
        directory = Path(text)
        old_token = asyncio.run(_old_token(directory / "relay"))
        with running_relay(directory / "relay", options=(*UNLIMITED, "--v1"), fresh=True) as relay:
            member = asyncio.run(enrolled(relay.url, enroll_token=relay.enroll_token))
            rows = on_uvloop(lambda: _blobs(relay, bare, member, directory, rounds))
            rows += on_uvloop(lambda: _drops(relay, bare, old_token, directory, max(3, rounds // 3)))
            rows.append(
                Row(
                    name="resident memory of the relay after all of it, peak",
                    value=_resident_peak(relay) / 1e6,
                    unit="MB",
                    target=value_at_most(100),
                )
            )
        return rows


async def _old_token(directory: Path) -> tuple[str, str]:
    """Tokens of one of the prototype's Nodes and of its Core."""
    store = LocalStore(directory)
    node, _ = await let_in(store, "node", Role.NODE)
    core, _ = await let_in(store, "core", Role.CORE)
    await store.aclose()
    return node, core


async def _blobs(relay: RelayProcess, bare: str, member: Member, directory: Path, rounds: int) -> list[Row]:
    up, down = Rates(), Rates()
    for number in range(rounds):
        body = os.urandom(BLOB_BYTES)
        target = path(member, f"blob/{number:04d}")
        create = b"If-None-Match: *\r\n"
        up.ours.append(await _send(relay.url, b"PUT", target, headers(member) + create, body, 201))
        up.bare.append(await _send(bare, b"PUT", target, b"Host: bare\r\n", body, 201))
        up.disk.append(_write(directory / "sequence", body))
        down.ours.append(await _fetch(relay.url, target, headers(member), BLOB_BYTES))
        down.bare.append(await _fetch(bare, b"/bytes/%d" % BLOB_BYTES, b"Host: bare\r\n", BLOB_BYTES))
        down.disk.append(_read(directory / "sequence"))
    return [up.row("8 MB blob up"), down.row("8 MB blob down")]


async def _drops(
    relay: RelayProcess, bare: str, tokens: tuple[str, str], directory: Path, rounds: int
) -> list[Row]:
    node, core = (f"Host: relay\r\nAuthorization: Bearer {token}\r\n".encode() for token in tokens)
    up, down = Rates(), Rates()
    for _ in range(rounds):
        body = os.urandom(DROP_BYTES)
        up.ours.append(await _send(relay.url, b"POST", b"/drop/conversations", node, body, 200))
        up.bare.append(await _send(bare, b"POST", b"/drop/conversations", b"Host: bare\r\n", body, 201))
        up.disk.append(_write(directory / "sequence", body))
        _, listed = await _ask(relay.url, b"GET /pickup/conversations HTTP/1.1\r\n%s\r\n" % core)
        name = re.findall(rb'"id":"([^"]+)"', listed)[-1]
        target = b"/pickup/conversations/" + name
        down.ours.append(await _fetch(relay.url, target, core, DROP_BYTES))
        down.bare.append(await _fetch(bare, b"/bytes/%d" % DROP_BYTES, b"Host: bare\r\n", DROP_BYTES))
        down.disk.append(_read(directory / "sequence"))
    return [
        up.row("100 MB up, by the prototype's routes"),
        down.row("100 MB down, by the prototype's routes"),
    ]


async def _send(url: str, method: bytes, target: bytes, head: bytes, body: bytes, expected: int) -> float:
    request = b"%s %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n" % (method, target, head, len(body))
    return await _timed(url, [request, body], expected, len(body))


async def _fetch(url: str, target: bytes, head: bytes, size: int) -> float:
    return await _timed(url, [b"GET %s HTTP/1.1\r\n%s\r\n" % (target, head)], 200, size)


async def _timed(url: str, request: list[bytes], expected: int, size: int) -> float:
    began = time.perf_counter()
    status, _ = await _ask(url, *request)
    assert status == expected, status
    return size / (time.perf_counter() - began) / 1e6


async def _ask(url: str, *request: bytes) -> tuple[int, bytes]:
    """One request on a connection of its own. Large answers are read and dropped."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=4 * MIB)
    writer.writelines(request)
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    match = re.search(rb"(?i)content-length: (\d+)", head)
    left = int(match[1]) if match else 0
    kept = b""
    while left:
        piece = await reader.read(min(left, MIB))
        assert piece, "the answer broke off"
        left -= len(piece)
        kept = kept + piece if len(kept) < MIB else kept
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), kept


def _write(file: Path, body: bytes) -> float:
    return _rate(len(body), lambda: _write_through(file, body))


def _write_through(file: Path, body: bytes) -> None:
    with file.open("wb", buffering=0) as opened:
        opened.write(body)
        os.fsync(opened.fileno())


def _read(file: Path) -> float:
    return _rate(file.stat().st_size, file.read_bytes)


def _rate(size: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return size / (time.perf_counter() - began) / 1e6


def _resident_peak(relay: RelayProcess) -> int:
    status = Path(f"/proc/{relay.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
