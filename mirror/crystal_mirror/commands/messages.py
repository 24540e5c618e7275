"""Messages of commands: a request, reports about it, and its withdrawal.

Encoding: MessagePack arrays, tagged by a number first. Decoding is strict: unknown tags, missing or additional fields,
wrong types and anything over the limits are refused. An action that this version does not know is well-formed: it is read,
and answered with a refusal.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from crystal_crypto.errors import Malformed, TooLarge
from crystal_crypto.limits import LETTER_CONTENT_BYTES_MAX

REQUEST_ID_BYTES = 16
EXPIRES_AFTER_ENTRIES = 5_000
"""A request expires once its target has applied this many mirror entries more than its asker had when it asked."""
TEXT_CHARS_MAX = 500
"""Text of a report, for people."""
RESULT_BYTES_MAX = 64 * 1024
"""Result of a report: a JSON document."""
ARGUMENT_CHARS_MAX = 200
ACTION_CHARS_MAX = 32
NUMBER_MAX = 2**53


class Action(StrEnum):
    """What one device may ask of another. The list is closed: no message holds a program or a path."""

    DREAM_WEAVE = "dream-weave"
    BACKFILL = "backfill"
    STATUS = "status"
    SNAPSHOT = "snapshot"
    VERIFY = "verify"
    BACKUP = "backup"
    ASK_GRANT = "ask-grant"

    @property
    def repeatable(self) -> bool:
        """Whether it may be done twice, so that it runs again if it was interrupted."""
        return self is not Action.DREAM_WEAVE  # §16.1-2

    @property
    def core_only(self) -> bool:
        return self in (Action.DREAM_WEAVE, Action.SNAPSHOT)


class CommandState(StrEnum):
    """How far a request has come, as its asker knows. The states from ``unknown`` on are ends."""

    UNSENT = "unsent"
    SENT = "sent"
    RUNNING = "running"
    UNKNOWN = "unknown"
    """It was begun, and how it ended cannot be known. The only end after which another may come."""
    REFUSED = "refused"
    EXPIRED = "expired"
    FAILED = "failed"
    DONE = "done"

    @property
    def ended(self) -> bool:
        return self not in (CommandState.UNSENT, CommandState.SENT, CommandState.RUNNING)

    @property
    def rank(self) -> int:
        """A report of a higher rank replaces one of a lower, whichever comes first."""
        return _RANKS.get(self, 3)


_RANKS = {
    CommandState.UNSENT: -2,
    CommandState.SENT: -1,
    CommandState.RUNNING: 0,
    CommandState.UNKNOWN: 1,
    CommandState.REFUSED: 2,
    CommandState.EXPIRED: 2,
}

REPORTED = frozenset(CommandState) - {CommandState.UNSENT, CommandState.SENT}

_Id = Annotated[bytes, msgspec.Meta(min_length=REQUEST_ID_BYTES, max_length=REQUEST_ID_BYTES)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
_Argument = Annotated[str, msgspec.Meta(max_length=ARGUMENT_CHARS_MAX)]  # §16.1-3
_ActionName = Annotated[str, msgspec.Meta(min_length=1, max_length=ACTION_CHARS_MAX, pattern="^[a-z-]+$")]


class Arguments(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Arguments of an action. Each action uses those that it knows; empty is the default. Never a path or a program."""

    agent: _Argument = ""
    mode: _Argument = ""
    since: _Argument = ""
    dry_run: bool = False
    limit: _Number = 0


class Request(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """``epoch`` and ``sequence``: the place in the mirror after which it must not begin any more."""

    id: _Id
    action: _ActionName
    arguments: Arguments
    epoch: _Number
    sequence: _Number


class Report(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """``number`` counts the reports of one request. ``result``: JSON, or nothing."""

    id: _Id
    number: _Number
    state: CommandState
    text: Annotated[str, msgspec.Meta(max_length=TEXT_CHARS_MAX)] = ""
    result: Annotated[bytes, msgspec.Meta(max_length=RESULT_BYTES_MAX)] = b""
    done: _Number = 0
    total: _Number = 0


class Withdraw(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """Withdraws a request that has not begun."""

    id: _Id


Message = Request | Report | Withdraw

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    """Raises TooLarge, Malformed for a message that a reader would refuse."""
    data = _encoder.encode(message)
    if len(data) > LETTER_CONTENT_BYTES_MAX:
        raise TooLarge(f"a command's message is at most {LETTER_CONTENT_BYTES_MAX} bytes, not {len(data)}")
    decode_message(data)
    return data


def decode_message(data: bytes) -> Message:
    """Raises Malformed for bytes that are no message of this version."""
    try:
        message = _decoder.decode(data)  # §16.1-1
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"not a message of this version: {error}") from error
    if isinstance(message, Report) and message.state not in REPORTED:  # §16.1-1, §16.1-4
        raise Malformed(f"no report says {message.state.value}")
    return message


def shortened(text: str) -> str:
    """A text cut to what a report holds."""
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"
