"""What the last round of files left in ``files.db``, for people who ask later. Apart from rounds: asking has to be quick."""

from typing import Annotated

import msgspec

from crystal_node.sync.files.book import FileDatabase

META_REPORT = "report"


class StoredReport(msgspec.Struct, frozen=True):
    """``at``: when the round was made, in milliseconds."""

    at: int = 0
    halted: str = ""
    waiting: int = 0
    busy: tuple[str, ...] = ()
    lacking: dict[str, str] = {}
    refused: dict[str, str] = {}
    refused_count: Annotated[int, msgspec.Meta(ge=0)] = 0


def stored_report(book: FileDatabase) -> StoredReport:
    """An empty one where there is none, or none that this version can read."""
    data = book.meta_get(META_REPORT)
    try:
        return msgspec.msgpack.decode(data, type=StoredReport) if data else StoredReport()
    except msgspec.MsgspecError:
        return StoredReport()
