"""The home's files: a look at a large tree in which nothing changed, one changed byte in a large file, and files between real
processes (`bench/file_transfers.py`).

The look is held against walking the same tree and asking for each file's size and times, which is the least that anybody has to
do. The byte is held against reading the file through SHA-256 once, which is the least that finds it.
"""

import hashlib
import os
import random
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench.file_transfers import rows as transfers
from bench.harness import Row, timed, value_at_most
from crystal_mirror.files.ports import SeenFile
from crystal_mirror.files.tree import AgreedFile, FileContent, content_digest
from crystal_mirror.operations import PutFile
from crystal_mirror.types import Origin
from tests.support.desks import Desk, Desks

MIB = 1024 * 1024
FILES = 100_000
FILES_IN_FOLDER = 100
BIG_BYTES = 1024 * MIB
_INCARNATION = bytes(8)


def run(quick: bool) -> list[Row]:
    with _folder() as folder:
        rows = _unchanged(folder, files=5_000 if quick else FILES)
    with _folder() as folder:
        rows += _one_byte(folder, size=64 * MIB if quick else BIG_BYTES)
    with _folder() as folder:
        rows += _renamed(folder)
    with _folder() as folder:
        return rows + transfers(folder, quick=quick)


@contextmanager
def _folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as folder:
        yield Path(folder)


def _unchanged(folder: Path, *, files: int) -> list[Row]:
    desk = Desks(folder).open("core")
    desk.files()  # makes the home's marker
    for number in range(files):
        _write(desk, number)
    _agree_on_all(desk)
    report = desk.files()
    assert (report.files, report.offered, report.halted) == (files, 0, ""), "all is agreed"
    desk.store.requests = 0
    rest = timed(desk.files, repeat=5)
    requests = desk.store.requests

    def planned() -> None:
        desk.book.meta_set("settled", None)
        desk.files()

    plan = timed(planned, repeat=3)
    walk = timed(lambda: _walk(desk.root), repeat=5)
    desk.close()
    what = f"{files:,} unchanged files"
    return [
        Row(
            name=f"{what}: a round",
            value=rest.median,
            unit="s",
            baseline="os.walk and stat",
            baseline_value=walk.median,
            target=value_at_most(5.0),
        ),
        Row(name=f"{what}: requests to the relay", value=requests, unit="", target=value_at_most(0)),
        Row(name=f"{what}: a round after the tree changed elsewhere", value=plan.median, unit="s"),
    ]


def _write(desk: Desk, number: int) -> None:
    folder = desk.root / "agents" / f"{number // FILES_IN_FOLDER // 100}" / f"{number // FILES_IN_FOLDER}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"note-{number}.md"
    file.write_bytes(b"note %d" % number)
    os.utime(file, ns=(10**18, 10**18))


def _agree_on_all(desk: Desk) -> None:
    """As if all files had been synced long ago."""
    read: list[tuple[SeenFile, PutFile]] = []
    for local in desk.disk.scan():
        parts = tuple(desk.disk.cut(local, desk.member.cut_seed()[0]))
        put = PutFile(local.path, None, local.executable, local.modified_at, parts)
        read.append((SeenFile(local, content_digest(parts)), put))
    agreed: list[AgreedFile] = []
    with desk.replica.transaction() as transaction:
        for number, (seen, put) in enumerate(read):
            origin = Origin(desk.member.device_id, _INCARNATION, number)
            transaction.apply(origin, put, lambda _text: [])
            agreed.append(AgreedFile(put.path, origin, FileContent(seen.digest, put.executable)))
    time.sleep(2.1)  # what was written just before is not trusted to be unchanged
    quiet = {local.path: local for local in desk.disk.scan()}
    desk.book.note_seen(*((SeenFile(quiet[put.path], seen.digest), put.parts) for seen, put in read))
    desk.book.set_agreed(*agreed)


def _walk(root: Path) -> int:
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            total += os.stat(f"{folder}/{name}").st_size  # noqa: PTH116  the plainest way is the baseline
    return total


def _one_byte(folder: Path, *, size: int) -> list[Row]:
    desks = Desks(folder, "laptop")
    core, laptop = desks.open("core"), desks.open("laptop")
    file = core.root / "big.bin"
    rng = random.Random(1)
    with file.open("wb") as out:
        for _ in range(size // MIB):
            out.write(rng.randbytes(MIB))
    core.sync()
    laptop.sync()
    with file.open("r+b") as out:
        out.seek(size // 2)
        byte = out.read(1)
        out.seek(size // 2)
        out.write(bytes([byte[0] ^ 1]))
    store = core.store
    store.bytes_put = store.blobs_put = store.blobs_got = 0
    started = time.perf_counter()
    core.sync()
    sent = time.perf_counter() - started
    started = time.perf_counter()
    laptop.sync()
    fetched = time.perf_counter() - started
    hashed = timed(lambda: _hash(file), repeat=3)
    assert _hash(laptop.root / "big.bin") == _hash(file), "the change has arrived"
    core.close()
    laptop.close()
    what = f"one byte changed in {size // MIB:,} MiB"
    return [
        Row(name=f"{what}: parts that move", value=store.blobs_put, unit="", target=value_at_most(3)),
        Row(name=f"{what}: sealed bytes that move", value=store.bytes_put / MIB, unit="MiB"),
        Row(
            name=f"{what}: found, sent and published",
            value=sent,
            unit="s",
            baseline="SHA-256 of the file",
            baseline_value=hashed.median,
        ),
        Row(
            name=f"{what}: on the other device, checked and in its place",
            value=fetched,
            unit="s",
            baseline="SHA-256 of the file",
            baseline_value=hashed.median,
            note=f"{store.blobs_got} parts fetched, the others copied here",
        ),
    ]


def _renamed(folder: Path) -> list[Row]:
    desks = Desks(folder, "laptop")
    core, laptop = desks.open("core"), desks.open("laptop")
    files = FILES_IN_FOLDER
    for number in range(files):
        core.write(f"drafts/note-{number}.md", f"note {number} " * 100)
    for desk in (core, laptop, core):
        desk.sync()
    time.sleep(2.1)  # what was written just before is read again
    (core.root / "drafts").rename(core.root / "essays")
    store = core.store
    store.blobs_put = store.blobs_got = 0
    started, processor = time.perf_counter(), time.process_time()
    for desk in (core, core, laptop):  # offered, ordered and published, applied
        desk.sync()
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    assert sorted(laptop.tree()) == sorted(f"essays/note-{number}.md" for number in range(files))
    started = time.perf_counter()
    (laptop.root / "essays").rename(laptop.root / "drafts")
    local = time.perf_counter() - started
    core.close()
    laptop.close()
    what = f"a folder of {files} files renamed"
    return [
        Row(
            name=f"{what}: renamed on another device",
            value=seconds,
            unit="s",
            baseline="the system's rename",
            baseline_value=local,
            target=value_at_most(1.0),
            note="three rounds, one after the other",
        ),
        Row(name=f"{what}: processor time of both devices", value=processor, unit="s"),
        Row(
            name=f"{what}: parts that move",
            value=store.blobs_put + store.blobs_got,
            unit="",
            target=value_at_most(0),
        ),
    ]


def _hash(file: Path) -> bytes:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").digest()
