"""Chats of other programs, as their people download them or as an editor keeps them: a file, a ZIP, or a folder of such files.

    ChatGPT, claude.ai     ``conversations.json`` (ChatGPT's newer ones are cut into ``conversations-000.json`` and so on)
    Gemini                 Takeout's ``MyActivity.json`` or ``MyActivity.html``
    Copilot in VS Code     an exported chat, or a session of ``chatSessions``
    Cursor                 ``state.vscdb``

JSON is read object by object, HTML activity by activity and a database chat by chat, so the memory that it takes does not grow
with the file. Nothing is unpacked to disk, so a name in a ZIP leads nowhere. An export may come from anybody: sizes are checked
before anything is read.
"""

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from crystal_node.base.project import ProjectFinder
from crystal_node.capture.exclusions import Exclusions
from crystal_node.capture.folders import files_below
from crystal_node.capture.json_values import as_object, as_text, parse_json
from crystal_node.capture.line_reader import open_regular
from crystal_node.device.device import Device
from crystal_node.safekeeping.portable import cursor_database, editor_chats, gemini_activity
from crystal_node.safekeeping.portable.conversation import (
    CONVERSATION_BYTES_MAX,
    DAMAGED,
    TOO_LONG,
    UNKNOWN,
    Conversation,
    NotAChatExport,
)
from crystal_node.safekeeping.portable.export_format import PieceRecord
from crystal_node.safekeeping.portable.record_import import ImportCounts, RecordImporter
from crystal_node.safekeeping.portable.web_chats import web_chat

EXPORT_BYTES_MAX = 32 * 1024 * 1024 * 1024
"""Of all conversations, unpacked."""
RATIO_MAX = 200
"""How many times larger a ZIP's file may be than it is packed: conversations pack to a fifth, at best to a thirtieth."""
MEMBERS_MAX = 100_000
DEPTH_MAX = 200
"""Of objects and arrays. Chats of today have about 20."""
BLOCK_BYTES = 256 * 1024
WORKSPACE_BYTES_MAX = 64 * 1024

_MEMBER = re.compile(r"conversations(-\d{1,6})?\.json")
_ACTIVITY = re.compile(r"My ?Activity\.(json|html)", re.IGNORECASE)
_EDITOR = re.compile(r"(?:^|/)(?:chatSessions|emptyWindowChatSessions)/[^/]+\.jsonl?")
_DATABASE = "state.vscdb"
_OUTSIDE = re.compile(rb'["{}\[\]]')
_INSIDE = re.compile(rb'["\\]')
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

Progress = Callable[[int, int], None]
"""Called with the bytes that were read, and how many there are."""
_Read = tuple[Conversation | None, int]
"""A conversation, None for what is none; and how many bytes of the file were read by then."""


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
    """One export that is being read. ``skipped``: parts and conversations that hold no words, or are too long, by reason.

    ``places``, ``exclusions``: the projects of chats that know their folder, and those that are kept out; None for neither.
    """

    path: Path
    progress: Progress = lambda _done, _total: None
    places: ProjectFinder | None = None
    exclusions: Exclusions | None = None
    conversations: int = 0
    skipped: Counter[str] = field(default_factory=Counter[str])

    def records(self) -> Iterator[PieceRecord]:
        """All messages, conversation by conversation. Raises NotAChatExport, OSError."""
        done = 0
        with _files(self.path) as files:
            total = sum(file.size for file in files)
            for file in files:
                reading = self._read(file)
                while True:
                    try:
                        conversation, read = next(reading)
                    except StopIteration:
                        break
                    except (NotAChatExport, OSError) as error:
                        if len(files) == 1:
                            raise
                        self.skipped[f"end of a file that cannot be read ({error})"] += 1
                        break
                    self.progress(done + min(read, file.size), total)
                    if conversation is not None:
                        self.conversations += 1
                        yield from conversation.records(self.places, self.exclusions, self.skipped)
                done += file.size
        self.progress(done, done)
        if not self.conversations:
            raise NotAChatExport(f"{self.path} holds no chats of a program that is known here")

    def _read(self, file: "_File") -> Iterator[_Read]:
        with file.opened() as opened:
            beginning = opened.read(len(cursor_database.HEADER))
        if beginning == cursor_database.HEADER and file.path is not None:
            chats = cursor_database.cursor_chats(file.path, _workspace(file.path), self.skipped)
            for chat, number, count in chats:
                yield chat, file.size * number // max(count, 1)
        elif beginning.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
            with file.opened() as opened:
                yield from gemini_activity.by_conversation(gemini_activity.of_html(opened, self.skipped))
        else:
            with file.opened() as opened:
                folder = _workspace(file.path) if file.path is not None else ""
                yield from gemini_activity.by_conversation(self._of_json(opened, folder))

    def _of_json(self, file: BinaryIO, folder: str) -> Iterator[_Read]:
        """Conversations of a file of JSON. A session's log is one, put together of its lines."""
        session: dict[str, object] | None = None
        size = read = 0
        broken = False
        reading = elements(file)
        while True:
            try:
                data, read = next(reading)
            except StopIteration:
                break
            except NotAChatExport:
                if session is None:
                    raise
                self.skipped[DAMAGED] += 1  # a log's last line: its program is writing it, or was killed
                break
            if data is None:
                self.skipped[TOO_LONG] += 1
                yield None, read
                continue
            try:
                found = as_object(parse_json(data))
            except ValueError:
                self.skipped[DAMAGED] += 1
                yield None, read
                continue
            if not editor_chats.is_log_line(found):
                yield self._conversation(found, folder), read
                continue
            size += len(data)
            if broken or size > CONVERSATION_BYTES_MAX:
                broken = True
                continue
            try:
                session = editor_chats.applied(session, found)
            except editor_chats.LogDamaged:
                self.skipped["change of a chat that does not fit it"] += 1
        if broken:
            self.skipped[TOO_LONG] += 1
        elif session is not None:
            yield self._conversation(session, folder), read

    def _conversation(self, found: dict[str, object], folder: str) -> Conversation | None:
        if gemini_activity.is_activity(found):
            return gemini_activity.of_object(found, self.skipped)
        if editor_chats.is_session(found):
            return editor_chats.editor_chat(found, folder, self.skipped)
        chat = web_chat(found, self.skipped)
        if chat is None:
            self.skipped[UNKNOWN] += 1
        return chat


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
                if depth > DEPTH_MAX:
                    raise NotAChatExport(f"the file is nested more than {DEPTH_MAX} deep")
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


class _File(NamedTuple):
    """A file with conversations. ``path``: where it is on the disk, None within a ZIP."""

    opened: Callable[[], BinaryIO]
    size: int
    path: Path | None = None


def _workspace(path: Path) -> str:
    """The folder whose workspace a file of an editor belongs to, "" if it belongs to none."""
    for place in (path.parent / "workspace.json", path.parent.parent / "workspace.json"):
        try:
            with open_regular(place) as file:
                found = as_object(parse_json(file.read(WORKSPACE_BYTES_MAX)))
        except (OSError, ValueError):
            continue
        address = as_text(found.get("folder")) or ""
        return unquote(urlsplit(address).path) if address.startswith("file:///") else ""
    return ""


@contextmanager
def _files(path: Path) -> Generator[list[_File]]:
    """The files with conversations. Raises NotAChatExport, OSError."""
    if path.is_dir():
        yield _below(path)
        return
    if not zipfile.is_zipfile(path):
        yield [_on_disk(path)]
        return
    try:
        with zipfile.ZipFile(path) as archive:
            yield [_File(_opener(archive, one), one.file_size) for one in _members(path, archive)]
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        raise NotAChatExport(f"{path} is a damaged ZIP: {error}") from error


def _on_disk(path: Path) -> _File:
    return _File(lambda: cast("BinaryIO", open_regular(path)), path.stat().st_size, path)


def _opener(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Callable[[], BinaryIO]:
    return lambda: cast("BinaryIO", archive.open(member))


def _below(folder: Path) -> list[_File]:
    """The files with conversations in a folder, links aside."""
    names = [found.path.relative_to(folder).as_posix() for found in files_below(folder, _may_hold)]
    known = [name for name in names if name.rpartition("/")[2] == _DATABASE or _is_known(name, folder)]
    if len(known) > MEMBERS_MAX:
        raise NotAChatExport(f"{folder} has {len(known):,} files of chats, more than {MEMBERS_MAX:,}")
    chosen = _chosen(known)
    if not chosen:
        raise NotAChatExport(f"{folder} holds no chats of a program that is known here, and no manifest.json")
    return [_on_disk(folder / name) for name in chosen]


def _may_hold(name: str) -> bool:
    return name == _DATABASE or name.endswith((".json", ".jsonl", ".html"))


def _is_known(name: str, folder: Path | None = None) -> bool:
    last = name.rpartition("/")[2]
    within = f"{folder.name}/{name}" if folder is not None else name
    return bool(_MEMBER.fullmatch(last) or _ACTIVITY.fullmatch(last) or _EDITOR.search(within))


def _chosen(names: list[str]) -> list[str]:
    """In the order in which they are read; of Takeout's activities only those of Gemini, as JSON where there is both."""
    activities = [name for name in names if _ACTIVITY.fullmatch(name.rpartition("/")[2])]
    own = [name for name in activities if re.search("gemini|bard", name, re.IGNORECASE)] or activities
    json = [name for name in own if name.lower().endswith(".json")] or own
    set_aside = set(activities)
    left = [name for name in names if name not in set_aside]
    return sorted(left + json, key=lambda name: name.rpartition("/")[2])


def _members(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    members = archive.infolist()
    if len(members) > MEMBERS_MAX:
        raise NotAChatExport(f"{path} has {len(members):,} files, more than {MEMBERS_MAX:,}")
    by_name = {one.filename: one for one in members}
    found = [by_name[name] for name in _chosen([name for name in by_name if _is_known(name)])]
    for one in found:
        if one.compress_type not in _PACKED or one.flag_bits & 1:
            raise NotAChatExport(f"{path} is packed or encrypted in a way that is not read here")
        if one.file_size > RATIO_MAX * max(one.compress_size, 1):
            raise NotAChatExport(f"{path} unpacks to more than {RATIO_MAX} times its size")
    if sum(one.file_size for one in found) > EXPORT_BYTES_MAX:
        raise NotAChatExport(f"{path} unpacks to more than {EXPORT_BYTES_MAX >> 30} GiB")
    if not found:
        raise NotAChatExport(f"{path} holds no conversations.json, and no activity of Gemini")
    return found
