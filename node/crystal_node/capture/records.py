"""One line of a Claude Code transcript, as a value.

The format is not ours and changes without notice. A line is parsed strictly and fast when it has the form that we know, and
otherwise again, forgivingly: what has an unexpected type counts as missing, bytes that are no UTF-8 and halves of
surrogate pairs are replaced. So an odd field costs that field, never the words beside it.
"""

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from crystal_node.capture.json_values import as_text, as_truth, is_array, is_object
from crystal_node.capture.messages import LineFault

PATH_BYTES_MAX = 4096

_BOM = b"\xef\xbb\xbf"


class ClaudeBlock(msgspec.Struct):
    """One block of a message: its type, and its words if it is of a type that has any."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None


class ClaudeMessage(msgspec.Struct):
    content: str | list[ClaudeBlock] | None = None
    model: str | None = None


class ClaudeOrigin(msgspec.Struct):
    kind: str | None = None


class ClaudeAttachment(msgspec.Struct):
    """``queued_command`` holds what was typed while the model worked; ``mode`` and ``origin`` say by whom."""

    type: str = ""
    prompt: str | list[ClaudeBlock] | None = None
    mode: str | None = msgspec.field(name="commandMode", default=None)
    origin: ClaudeOrigin | None = None


class ClaudeRecord(msgspec.Struct):
    """What capture reads of a record."""

    type: str = ""
    uuid: str | None = None
    session: str | None = msgspec.field(name="sessionId", default=None)
    timestamp: str | None = None
    cwd: str | None = None
    is_meta: bool | None = msgspec.field(name="isMeta", default=None)
    is_sidechain: bool | None = msgspec.field(name="isSidechain", default=None)
    is_summary: bool | None = msgspec.field(name="isCompactSummary", default=None)
    is_api_error: bool | None = msgspec.field(name="isApiErrorMessage", default=None)
    message: ClaudeMessage | None = None
    attachment: ClaudeAttachment | None = None


@dataclass(frozen=True, slots=True)
class BlankLine:
    """A line of white space."""


_decoder = msgspec.json.Decoder(ClaudeRecord)


def parse_line(line: bytes) -> ClaudeRecord | LineFault | BlankLine:
    """The record on a line, without its line end. Never raises."""
    line = line.removeprefix(_BOM)
    if not line.strip():
        return BlankLine()
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value: object = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return LineFault.NOT_JSON
    return _record(value) if is_object(value) else LineFault.UNKNOWN_FORM


def _record(fields: dict[str, Any]) -> ClaudeRecord:
    return ClaudeRecord(
        type=as_text(fields.get("type")) or "",
        uuid=as_text(fields.get("uuid")),
        session=as_text(fields.get("sessionId")),
        timestamp=as_text(fields.get("timestamp")),
        cwd=as_text(fields.get("cwd")),
        is_meta=as_truth(fields.get("isMeta")),
        is_sidechain=as_truth(fields.get("isSidechain")),
        is_summary=as_truth(fields.get("isCompactSummary")),
        is_api_error=as_truth(fields.get("isApiErrorMessage")),
        message=_message(fields.get("message")),
        attachment=_attachment(fields.get("attachment")),
    )


def _message(value: object) -> ClaudeMessage | None:
    if not is_object(value):
        return None
    return ClaudeMessage(_content(value.get("content")), as_text(value.get("model")))


def _attachment(value: object) -> ClaudeAttachment | None:
    if not is_object(value):
        return None
    origin = value.get("origin")
    return ClaudeAttachment(
        as_text(value.get("type")) or "",
        _content(value.get("prompt")),
        as_text(value.get("commandMode")),
        ClaudeOrigin(as_text(origin.get("kind"))) if is_object(origin) else None,
    )


def _content(value: object) -> str | list[ClaudeBlock] | None:
    if is_array(value):
        return [_block(item) for item in value]
    return as_text(value)


def _block(value: object) -> ClaudeBlock:
    if not is_object(value):
        return ClaudeBlock("", as_text(value))
    return ClaudeBlock(
        as_text(value.get("type")) or "", as_text(value.get("text")), as_text(value.get("thinking"))
    )
