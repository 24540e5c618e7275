"""Copies of sessions in a memory home, as another device would have written them, side files too."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crystal_node.derive.sessions.layout import HEAD_NAME, Head, encode_head, segment_path
from tests.node.derive.sessions.support import stream_of

LAPTOP = "a1" * 16
DESKTOP = "b2" * 16


def written_copy(
    root: Path,
    tool: str,
    session: str,
    data: bytes,
    device: str = LAPTOP,
    side: Mapping[str, bytes] | None = None,
    **about: Any,
) -> Head:
    """Write a copy of a session of these bytes, two segments long where it has several lines. Returns its head."""
    held = {"": data} | dict(side or {})
    cut = data.find(b"\n") + 1
    made = {
        path: stream_of([data[:cut], data[cut:]] if not path and data[cut:] else [each], path=path)
        for path, each in held.items()
    }
    head = Head(
        tool=tool,
        session=session,
        device=device,
        number=about.pop("number", 1),
        lines=data.count(b"\n"),
        main=made[""][0],
        side=tuple(stream for path, (stream, _) in made.items() if path),
        **about,
    )
    folder = head.place.folder(root)
    folder.mkdir(parents=True, exist_ok=True)
    for stream, segments in made.values():
        for segment, packed in segments:
            path = segment_path(folder, stream, segment)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(packed)
    (folder / HEAD_NAME).write_bytes(encode_head(head))
    return head


def written_long_ago(path: Path) -> None:
    """Have a file look as if nobody wrote to it just now."""
    os.utime(path, (1_700_000_000, 1_700_000_000))
