"""Exports of ChatGPT and of claude.ai, as their people download them: a ZIP with ``conversations.json``, or that file alone.

Both are one JSON array with a conversation in each element (ChatGPT's newer ones are cut into ``conversations-000.json`` and so
on). The array is read element by element, so the memory that it takes does not grow with the file.

    ChatGPT     ``mapping``: nodes by id, each with a message (``author.role``, ``create_time``, ``content.parts``); a tree, of
                which all branches were said
    claude.ai   ``chat_messages``: ``sender`` (human or assistant), ``created_at``, ``content`` in blocks, or ``text``

Left out are calls of tools, pictures and files, and what the service hides from its own page. Nothing is unpacked to disk, so a
name in a ZIP leads nowhere. An export may come from anybody: sizes are checked before anything is read.
"""

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from crystal_node.base.errors import UsageError
from crystal_node.capture.json_values import as_array, as_object, as_text, is_array, is_object, parse_json
from crystal_node.capture.line_reader import open_regular
from crystal_node.capture.messages import bounded, derived_id, joined, moment_of, plain
from crystal_node.capture.private_words import without_private
from crystal_node.device.device import Device
from crystal_node.safekeeping.portable.export_format import PieceRecord
from crystal_node.safekeeping.portable.record_import import ImportCounts, RecordImporter

CONVERSATION_BYTES_MAX = 64 * 1024 * 1024
"""One conversation. A longer one is left out, and counted."""
EXPORT_BYTES_MAX = 32 * 1024 * 1024 * 1024
"""Of all conversations, unpacked."""
RATIO_MAX = 200
"""How many times larger a ZIP's file may be than it is packed: conversations pack to a fifth, at best to a thirtieth."""
MEMBERS_MAX = 100_000
BLOCK_BYTES = 256 * 1024

_MEMBER = re.compile(r"conversations(-\d{1,6})?\.json")
_OUTSIDE = re.compile(rb'["{}\[\]]')
_INSIDE = re.compile(rb'["\\]')
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ROLES = {"user": "user", "human": "user", "assistant": "assistant"}


class NotAChatExport(UsageError):
    """A file is no export that is known here, or is damaged."""

    hint = "Give the ZIP that ChatGPT or claude.ai let you download, its conversations.json, or a folder of `crystal export`."


Progress = Callable[[int, int], None]
"""Called with the bytes that were read, and how many there are."""


def import_chats(device: Device, export: "ChatExport", *, dry_run: bool = False) -> ImportCounts:
    """Imports an export's messages. A repeated run goes on, and adds nothing twice.

    Raises:
        NotAChatExport: what was imported before stays.
        PrivateNow, LocalStorage, JournalDamaged, VaultDataError, OSError: the same.
    """
    importer = RecordImporter(device, dry_run=dry_run)
    importer.pieces(export.records())
    return importer.taken


@dataclass
class ChatExport:
    """One export that is being read. ``skipped``: parts and conversations that hold no words, or are too long, by reason."""

    path: Path
    progress: Progress = lambda _done, _total: None
    conversations: int = 0
    skipped: Counter[str] = field(default_factory=Counter[str])

    def records(self) -> Iterator[PieceRecord]:
        """All messages, conversation by conversation. Raises NotAChatExport, OSError."""
        done = 0
        with _files(self.path) as files:
            total = sum(size for _, size in files)
            for opened, size in files:
                with opened() as file:
                    for data, read in elements(file):
                        self.progress(done + read, total)
                        if data is None:
                            self.skipped["conversation too long"] += 1
                        else:
                            yield from self._conversation(data)
                done += size
        self.progress(done, done)
        if not self.conversations:
            raise NotAChatExport(f"{self.path} holds no conversations of ChatGPT or claude.ai")

    def _conversation(self, data: bytes) -> Iterator[PieceRecord]:
        try:
            found = as_object(parse_json(data))
        except ValueError:
            self.skipped["damaged conversation"] += 1
            return
        if is_object(found.get("mapping")):
            spoken, source = self._of_chatgpt(found), "chatgpt"
            session = as_text(found.get("conversation_id")) or as_text(found.get("id"))
        elif is_array(found.get("chat_messages")):
            spoken, source, session = self._of_claude(found), "claude.ai", as_text(found.get("uuid"))
        else:
            self.skipped["conversation of unknown form"] += 1
            return
        self.conversations += 1
        begun = moment_of(found.get("create_time")) or moment_of(found.get("created_at"))
        named = bounded(session) or derived_id(source, str(begun), as_text(found.get("title")) or "")
        for message, moment, texts in sorted(spoken, key=lambda one: one[1] or begun):
            for part, (role, text) in enumerate(texts.items()):
                said = without_private(text) if role == "user" else text
                if said.strip():
                    yield PieceRecord(
                        text=said,
                        agent=source.replace(".", "-"),
                        session=named,
                        role=role,
                        message=bounded(message) or derived_id(named, role, str(moment), text),
                        part=part,
                        created_at=moment or begun,
                        source=source,
                    )

    def _of_chatgpt(self, found: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, str]]]:
        for node in as_object(found["mapping"]).values():
            message = as_object(as_object(node).get("message"))
            role = _ROLES.get(as_text(as_object(message.get("author")).get("role")) or "", "")
            hidden = as_object(message.get("metadata")).get("is_visually_hidden_from_conversation") is True
            content = as_object(message.get("content"))
            kind = as_text(content.get("content_type")) or ""
            if not message or not role or hidden:
                if message:
                    self.skipped["not said by anybody"] += 1
                continue
            blocks = [("thinking", _thought(one)) for one in as_array(content.get("thoughts"))]
            if kind in ("text", "multimodal_text"):
                parts = [
                    as_text(one) or as_text(as_object(one).get("text"))
                    for one in as_array(content.get("parts"))
                ]
                self.skipped.update("picture or file" for one in parts if one is None)
                blocks += [(role, plain(one)) for one in parts if one]
            elif not blocks:
                self.skipped["tool call"] += 1
            yield as_text(message.get("id")) or "", moment_of(message.get("create_time")), joined(blocks)

    def _of_claude(self, found: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, str]]]:
        for message in map(as_object, as_array(found["chat_messages"])):
            role = _ROLES.get(as_text(message.get("sender")) or "", "")
            if not role:
                self.skipped["not said by anybody"] += 1
                continue
            blocks: list[tuple[str, str]] = []
            for block in map(as_object, as_array(message.get("content"))):
                if (text := as_text(block.get("text"))) is not None and block.get("type") == "text":
                    blocks.append((role, plain(text)))
                elif (thought := as_text(block.get("thinking"))) is not None:
                    blocks.append(("thinking", plain(thought)))
                else:
                    self.skipped["tool call"] += 1
            if not any(text for said_by, text in blocks if said_by == role):
                blocks.append((role, plain(as_text(message.get("text")) or "")))
            yield as_text(message.get("uuid")) or "", moment_of(message.get("created_at")), joined(blocks)


def elements(file: BinaryIO) -> Iterator[tuple[bytes | None, int]]:
    """The objects of a JSON array, or the one object that the file is, each with how many bytes were read by then; None for one
    over ``CONVERSATION_BYTES_MAX``. Raises NotAChatExport: it ends in the middle of one."""
    held = bytearray()
    depth = read = base = 0
    in_string = is_long = False
    while block := file.read(BLOCK_BYTES):
        read += len(block)
        at = start = 0
        while (found := (_INSIDE if in_string else _OUTSIDE).search(block, at)) is not None:
            mark, at = found[0], found.end()
            if mark == b"\\":
                at += 1  # what it escapes, which may be the next block's first byte
            elif mark == b'"':
                in_string = not in_string
            elif mark == b"[" and depth == 0:
                base = depth = 1
            elif mark in b"{[":
                if depth == base:
                    start = found.start()
                depth += 1
            elif depth > base:
                depth -= 1
                if depth == base:
                    held += block[start:at]
                    yield (None if is_long or len(held) > CONVERSATION_BYTES_MAX else bytes(held)), read
                    held.clear()
                    is_long = False
        if depth > base:
            held += block[start:]
            if len(held) > CONVERSATION_BYTES_MAX:
                held.clear()
                is_long = True
        if at > len(block):
            escaped = file.read(1)
            read += len(escaped)
            held += escaped if depth > base and not is_long else b""
    if depth > base:
        raise NotAChatExport("the file ends in the middle of a conversation")


_Opened = Callable[[], BinaryIO]


@contextmanager
def _files(path: Path) -> Iterator[list[tuple[_Opened, int]]]:
    """The files with conversations, each with its size. Raises NotAChatExport, OSError."""
    if not zipfile.is_zipfile(path):
        yield [(lambda: cast("BinaryIO", open_regular(path)), path.stat().st_size)]
        return
    try:
        with zipfile.ZipFile(path) as archive:
            yield [(_opener(archive, one), one.file_size) for one in _members(path, archive)]
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        raise NotAChatExport(f"{path} is a damaged ZIP: {error}") from error


def _opener(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> _Opened:
    return lambda: cast("BinaryIO", archive.open(member))


def _members(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    members = archive.infolist()
    if len(members) > MEMBERS_MAX:
        raise NotAChatExport(f"{path} has {len(members):,} files, more than {MEMBERS_MAX:,}")
    found = [one for one in members if _MEMBER.fullmatch(one.filename.rpartition("/")[2])]
    for one in found:
        if one.compress_type not in _PACKED or one.flag_bits & 1:
            raise NotAChatExport(f"{path} is packed or encrypted in a way that is not read here")
        if one.file_size > RATIO_MAX * max(one.compress_size, 1):
            raise NotAChatExport(f"{path} unpacks to more than {RATIO_MAX} times its size")
    if sum(one.file_size for one in found) > EXPORT_BYTES_MAX:
        raise NotAChatExport(f"{path} unpacks to more than {EXPORT_BYTES_MAX >> 30} GiB")
    if not found:
        raise NotAChatExport(f"{path} holds no conversations.json")
    return sorted(found, key=lambda one: one.filename.rpartition("/")[2])


def _thought(value: object) -> str:
    fields = as_object(value)
    return plain("\n".join(filter(None, (as_text(fields.get(name)) for name in ("summary", "content")))))
