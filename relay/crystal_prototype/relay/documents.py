"""The prototype's JSON answers, with its members and no others."""

from typing import Annotated

import msgspec

from crystal_prototype.relay.names import ID, V1Channel

BlobId = Annotated[str, msgspec.Meta(pattern=f"^{ID}$", description="In the order of the drops.")]
Moment = Annotated[str, msgspec.Meta(description="ISO 8601, UTC, milliseconds.")]


class V1DropReply(msgspec.Struct, frozen=True):
    """What was dropped, and is on disk."""

    ok: bool
    id: BlobId
    channel: V1Channel
    size: int
    dropped_at: Moment


class V1Blob(msgspec.Struct, frozen=True):
    """A blob that waits for the reader. `agent_id`: the one that the dropper's token was made for."""

    id: BlobId
    size: int
    dropped_at: Moment
    agent_id: str


class V1ListReply(msgspec.Struct, frozen=True):
    """What the reader has not confirmed yet, all of it, in the order of the drops."""

    channel: V1Channel
    count: int
    blobs: list[V1Blob]


class V1ConfirmReply(msgspec.Struct, frozen=True):
    """It is not shown to this reader again."""

    ok: bool
    deleted: bool


class V1ErrorReply(msgspec.Struct, frozen=True):
    """What went wrong, for a person."""

    error: str
