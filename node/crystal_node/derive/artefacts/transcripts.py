"""A conversation as a file of JSON lines: ``memory/transcripts/<session>.jsonl``.

    {"type":"conversation","version":1,"agent":…,"session":…}
    {"type":"place","source":…,"project":…,"repository":…}     wherever it changes
    {"type":"piece","id":…,"role":…,"at":…,"device":…,"message":…,"part":…,"text":…}
    {"type":"end","sha256":…}                                   of all lines before it (``seal``)

`crystal forget` takes the ``id``; ``at`` is null if unknown. A long message is several pieces that overlap.
"""

from collections.abc import Iterable, Iterator

import msgspec

from crystal_node.base.wording import iso
from crystal_node.derive.artefacts.conversation import ConversationPiece

VERSION = 1

_encode = msgspec.json.Encoder().encode


def transcript(agent: str, session: str, pieces: Iterable[ConversationPiece]) -> Iterator[bytes]:
    """The file's lines without its seal: a pure function of the pieces."""
    yield _line({"type": "conversation", "version": VERSION, "agent": agent, "session": session})
    place: tuple[str, str, str] | None = None
    for piece in pieces:
        here = (piece.source, piece.project, piece.repository)
        if here != place:
            place = here
            source, project, repository = here
            yield _line({"type": "place", "source": source, "project": project, "repository": repository})
        yield _line(
            {
                "type": "piece",
                "id": piece.id.hex(),
                "role": piece.role,
                "at": iso(piece.created_at),
                "device": piece.device.hex(),
                "message": piece.message,
                "part": piece.part,
                "text": piece.text,
            }
        )


def _line(document: dict[str, object]) -> bytes:
    return _encode(document) + b"\n"
