"""The home's files in ``crystal sync``: after the memory's round, and failing by themselves."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from crystal_mirror.files.states import FilesReport
from crystal_node.base.errors import describe, passes
from crystal_node.device.runner import TokenRefused

if TYPE_CHECKING:
    from crystal_node.sync.sync import Syncer, SyncResult


async def with_files(syncer: "Syncer", result: "SyncResult") -> "SyncResult":
    """A round of the files; and, where it offered something, the memory's round that sends it. What the memory's own round did
    stands, whatever becomes of them.

    Raises:
        Revoked, TokenRefused: this device is out.
    """
    started, before = time.monotonic(), syncer.traffic
    files: FilesReport | None = None
    problem = ""
    try:
        files = await syncer.files()
        if files is not None and files.offered:
            await syncer.round()
            settled = await syncer.files(scan=False)
            files.waiting = settled.waiting if settled is not None else files.offered
    except Exception as error:
        if isinstance(error, TokenRefused) or not passes(error):
            raise
        problem = describe(error).message
    traffic = result.traffic.plus(syncer.traffic.since(before))
    seconds = result.seconds + time.monotonic() - started
    return replace(result, traffic=traffic, seconds=seconds, files=files, files_problem=problem)
