"""Operations: what devices do to the vault's memory, as values and as bytes.

An operation is made once, on one device, and its bytes never change afterwards: they travel in the maker's stream, stand
verbatim in the mirror, and are offered again verbatim if a log was lost. Every device applies the same operations in the
same order, so the bytes are all that devices have to agree on.

Encoding: MessagePack arrays, tagged by a short string first (``["c", agent, session, …]``). Decoding is strict: unknown
tags, missing fields, wrong types and anything over the limits are refused before the operation is looked at.
"""

from typing import Annotated

import msgspec

from crystal_crypto.errors import Malformed, TooLarge
from crystal_mirror.types import HASH_BYTES

OPERATION_BYTES_MAX = 256 * 1024
"""One encoded operation. With its vectors it fits one entry of 1 MiB with room to spare."""
PIECE_BYTES_MAX = 64 * 1024
"""UTF-8 bytes of one piece of text."""
PIECES_MAX = 256
"""Pieces in one capture."""
TARGETS_MAX = 4096
"""Targets of one forget."""
NAME_CHARS_MAX = 1024
"""Any name: agent, session, project, message id."""

Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Piece(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One piece of one message: the unit that becomes a chunk.

    ``created_at`` is in milliseconds since 1970, 0 if unknown. ``message`` is the source's own id of the message, or ""
    if it has none; ``part`` numbers the pieces of one message from 0.
    """

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=PIECE_BYTES_MAX)]
    role: Name
    created_at: Milliseconds
    message: Name
    part: Annotated[int, msgspec.Meta(ge=0, le=2**31)]


class Capture(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="c"):
    """Pieces of one session, in order. ``project`` is relative to the maker's home, ``repository`` a normalised remote."""

    agent: Name
    session: Name
    project: Name
    repository: Name
    source: Name
    pieces: Annotated[tuple[Piece, ...], msgspec.Meta(min_length=1, max_length=PIECES_MAX)]


class Remember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="r"):
    """A memory that a person or an agent put into words. Lifts an earlier forget of the same text."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=PIECE_BYTES_MAX)]
    category: Name
    agent: Name
    created_at: Milliseconds


class Forget(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="f"):
    """Texts to remove everywhere and for good, named by keyed content hash so that the operation does not say which."""

    targets: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)], ...],
        msgspec.Meta(min_length=1, max_length=TARGETS_MAX),
    ]


Operation = Capture | Remember | Forget

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Operation] = msgspec.msgpack.Decoder(Operation)


def encode_operation(operation: Operation) -> bytes:
    """The operation's bytes, which are its identity from here on.

    Raises:
        TooLarge: over ``OPERATION_BYTES_MAX``, or a piece over ``PIECE_BYTES_MAX``. Nothing was made.
        Malformed: a field is out of its bounds.
    """
    try:
        data = _encoder.encode(operation)
    except (UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise Malformed(f"an operation could not be encoded: {error}") from error
    decode_operation(data)
    return data


def decode_operation(data: bytes) -> Operation:
    """Parses and checks an operation.

    Raises:
        TooLarge: the bytes or a text are over the limit.
        Malformed: not an operation of this version.
    """
    if len(data) > OPERATION_BYTES_MAX:
        raise TooLarge(f"an operation of {len(data)} bytes is over the limit of {OPERATION_BYTES_MAX}")
    try:
        operation = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"not an operation of this version: {error}") from error
    texts: tuple[str, ...] = ()
    if isinstance(operation, Capture):
        texts = tuple(piece.text for piece in operation.pieces)
    elif isinstance(operation, Remember):
        texts = (operation.text,)
    for text in texts:
        if len(text) * 4 > PIECE_BYTES_MAX and len(text.encode()) > PIECE_BYTES_MAX:
            raise TooLarge(f"a piece of text is over the limit of {PIECE_BYTES_MAX} bytes")
    return operation
