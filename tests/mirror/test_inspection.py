"""The deep inspection reads what it is to read, tells how far it is, and repairing files counts what it did."""

from collections.abc import Generator
from typing import Any

import pytest

from crystal_mirror.entries.control_state import newest_snapshot
from crystal_mirror.operations import FilePart, PutFile
from crystal_mirror.repair.inspection import SNAPSHOT, Fault, inspect
from crystal_mirror.repair.repairs import repair_files
from crystal_mirror.requests import Progress, Request
from crystal_mirror.snapshots.blobs import BlobRef, blob_key, put_verified
from crystal_mirror.snapshots.creation import read_manifest
from tests.mirror.household import Household
from tests.mirror.test_snapshots import remember, snapshot


@pytest.fixture
def home() -> Household:
    home = Household()
    for number in range(40):
        remember(home.core, f"fact number {number}")
    home.sync(home.core)
    snapshot(home)
    return home


def asked(home: Household, flow: Generator[Request, Any, Any]) -> tuple[Any, list[Request]]:
    """What a flow comes to, and what it asked of the store."""
    requests: list[Request] = []

    def through() -> Generator[Request, Any, Any]:
        answer: Any = None
        while True:
            try:
                request = flow.send(answer)
            except StopIteration as end:
                return end.value
            requests.append(request)
            answer = yield request

    return home.store.run(through()), requests


def test_only_a_fetching_inspection_reads_the_snapshots_parts(home: Household) -> None:
    newest = newest_snapshot(home.core.replica)
    assert newest is not None
    manifest = home.store.run(read_manifest(home.core, newest))
    key = blob_key(home.core, manifest.parts[0])
    whole = home.store[key]
    home.store[key] = whole[:-1] + bytes([whole[-1] ^ 1])
    found, requests = asked(home, inspect(home.core))
    assert [problem.fault for problem in found.problems] == [Fault.SNAPSHOT]
    found, requests = asked(home, inspect(home.core, fetch=False))
    assert (found.problems, found.bytes) == ([], 0)
    del home.store[key]
    found, requests = asked(home, inspect(home.core, fetch=False))
    assert [problem.fault for problem in found.problems] == [Fault.SNAPSHOT]
    home.store[key] = whole
    found, requests = asked(home, inspect(home.core))
    told = [request for request in requests if isinstance(request, Progress) and request.what == SNAPSHOT]
    assert found.bytes == told[-1].done == told[-1].total == manifest.length


def test_repairing_files_counts_files_and_parts(home: Household) -> None:
    contents = {f"plans/{number}.md": f"plan {number}".encode() for number in range(3)}
    for path, content in contents.items():
        ref, _ = home.store.run(put_verified(home.core, content, compress=True))
        part = FilePart(ref.content, ref.length, ref.named)
        home.core.accept(PutFile(path, None, False, 5, (part,)))
    home.sync(home.core, home.core)
    rows = {row.path: row for row in home.core.replica.files()}
    for path in ("plans/0.md", "plans/1.md"):
        key = blob_key(home.core, BlobRef.of(rows[path].parts[0]))
        home.store[key] = home.store[key][:-1] + bytes([home.store[key][-1] ^ 1])
    kept = {rows["plans/0.md"].parts[0].content: contents["plans/0.md"]}
    report = home.store.run(repair_files(home.core, contents, kept.get))
    assert (report.files, report.parts, report.left) == (1, 1, 1)
