"""Cursor's chats: the database ``state.vscdb`` of ``User/globalStorage``, or of a folder below ``User/workspaceStorage``.

    cursorDiskKV   ``composerData:<chat>``: ``name``, ``createdAt``, ``fullConversationHeadersOnly`` with the order of its
                   messages, or ``conversation`` with the messages themselves; ``bubbleId:<chat>:<message>``: ``type`` (1 the
                   person, 2 the model), ``text``, ``thinking.text``, ``toolFormerData``, ``createdAt``
    ItemTable      ``workbench.panel.aichat.view.aichat.chatdata``: ``tabs`` of ``bubbles``, as until early 2025

No other key is asked for: ``ItemTable`` holds the person's tokens as well. The program is closed; this is the form that several
public programs read, which their authors made after databases of their own.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from crystal_node.capture.database_file import read_snapshot, tables_of
from crystal_node.capture.json_values import as_array, as_object, as_text, parse_json
from crystal_node.capture.messages import joined, moment_of, plain
from crystal_node.safekeeping.portable.conversation import (
    CONVERSATION_BYTES_MAX,
    DAMAGED,
    TOO_LONG,
    TOOL_CALL,
    Conversation,
    NotAChatExport,
    Said,
    Skipped,
)

AGENT = "cursor"
CHATS_MAX = 100_000
MESSAGES_MAX = 100_000
"""Of one chat."""
HEADER = b"SQLite format 3\0"
_ROLES: dict[object, str] = {1: "user", 2: "assistant", "user": "user", "ai": "assistant"}
_TABS = "workbench.panel.aichat.view.aichat.chatdata"
_CHAT, _MESSAGE = "composerData:", "bubbleId:"
_TABLES = ("cursorDiskKV", "ItemTable")

_Listed = tuple[list[str] | None, bytes | None, bool]
"""The chats' ids, None without their table; the tabs of earlier versions, None for none; whether these are too large."""
_Chat = tuple[bytes, dict[str, bytes]] | None
"""A chat and its messages by id, as they are stored; None for one over the limits."""


def cursor_chats(path: Path, folder: str, skipped: Skipped) -> Iterator[tuple[Conversation | None, int, int]]:
    """Each chat, how many were read by then, and how many there are; a chat is read in a transaction of its own.

    ``folder``: the one whose workspace the database is, "" for the database of all. Raises NotAChatExport, OSError.
    """
    nothing_listed: _Listed = None, None, False
    chats, tabs, too_large = read_snapshot(path, _listed, nothing_listed)[0]
    if chats is None and tabs is None and not too_large:
        raise NotAChatExport(f"{path} is no database of Cursor's chats")
    names = (chats or [])[:CHATS_MAX]
    if len(names) < len(chats or ()):
        skipped["chat beyond the first 100,000"] += 1
    if too_large:
        skipped[TOO_LONG] += 1
    for number, name in enumerate(names, 1):
        nothing: _Chat = None
        chat = read_snapshot(path, partial(_chat, name=name), nothing)[0]
        if chat is None:
            skipped[TOO_LONG] += 1
            yield None, number, len(names)
        else:
            yield _conversation(name, *chat, folder, skipped), number, len(names)
    for tab in map(as_object, as_array(as_object(_parsed(tabs or b"{}", skipped)).get("tabs"))):
        yield _of_tab(tab, folder, skipped), len(names), len(names)


def _listed(database: apsw.Connection) -> _Listed:
    tables = tables_of(database)
    there = [one for one in _TABLES if {"key", "value"} <= set(tables.get(one, []))]
    chats: list[str] | None = None
    tabs: bytes | None = None
    too_large = False
    if "cursorDiskKV" in there:
        # Without its index each chat would read the whole table.
        indexed = database.execute(
            "SELECT count(*) FROM pragma_index_list('cursorDiskKV') l, pragma_index_info(l.name) i "
            "WHERE i.seqno = 0 AND i.name = 'key'"
        ).get
        if indexed:
            rows = database.execute(
                "SELECT substr(CAST(key AS BLOB), ?) FROM cursorDiskKV "
                "WHERE key >= ? AND key < ? AND value IS NOT NULL LIMIT ?",
                (len(_CHAT) + 1, _CHAT, _CHAT[:-1] + ";", CHATS_MAX + 1),
            )
            chats = [bytes(name).decode("utf-8", "replace") for (name,) in rows]
    if "ItemTable" in there:
        row = database.execute(
            "SELECT octet_length(value), CASE WHEN octet_length(value) <= ? THEN CAST(value AS BLOB) END "
            "FROM ItemTable WHERE key = ?",
            (CONVERSATION_BYTES_MAX, _TABS),
        ).fetchone()
        if row and row[0] is not None:
            tabs, too_large = row[1], row[1] is None
    return chats, tabs, too_large


def _chat(database: apsw.Connection, name: str) -> _Chat:
    low = f"{_MESSAGE}{name}:"
    about = database.execute(
        "SELECT octet_length(value) FROM cursorDiskKV WHERE key = ?", (_CHAT + name,)
    ).fetchone()
    within = "FROM cursorDiskKV WHERE key >= ? AND key < ? AND value IS NOT NULL"
    span = (low, low[:-1] + ";")
    count, size = database.execute(
        f"SELECT count(*), total(octet_length(value)) {within}", span
    ).fetchone() or (0, 0)
    if about is None or count > MESSAGES_MAX or size + (about[0] or 0) > CONVERSATION_BYTES_MAX:
        return None
    chat = database.execute(
        "SELECT CAST(value AS BLOB) FROM cursorDiskKV WHERE key = ?", (_CHAT + name,)
    ).fetchone()
    rows = database.execute(f"SELECT CAST(key AS BLOB), CAST(value AS BLOB) {within}", span)
    messages = {bytes(key).decode("utf-8", "replace")[len(low) :]: bytes(value) for key, value in rows}
    return bytes((chat and chat[0]) or b""), messages


def _conversation(
    name: str, chat: bytes, messages: dict[str, bytes], folder: str, skipped: Skipped
) -> Conversation:
    about = as_object(_parsed(chat, skipped))
    begun = moment_of(about.get("createdAt"))
    place = as_object(as_object(about.get("workspaceIdentifier")).get("uri"))
    inline = as_array(about.get("conversation"))
    if inline:
        found = [as_object(one) for one in inline]
    else:
        headers = [as_object(one) for one in as_array(about.get("fullConversationHeadersOnly"))]
        found = []
        for header in headers:
            stored = messages.get(as_text(header.get("bubbleId")) or "")
            if stored is None:
                skipped["message that the database no longer has"] += 1
            else:
                found.append(header | as_object(_parsed(stored, skipped)))
    said = list(_said(found, begun, skipped))
    return Conversation(
        AGENT,
        AGENT,
        name,
        begun,
        said,
        as_text(about.get("name")) or "",
        as_text(place.get("fsPath")) or as_text(place.get("path")) or folder,
    )


def _of_tab(tab: dict[str, Any], folder: str, skipped: Skipped) -> Conversation:
    begun = moment_of(tab.get("lastSendTime"))
    said = list(_said([as_object(one) for one in as_array(tab.get("bubbles"))], begun, skipped))
    title = as_text(tab.get("chatTitle")) or ""
    return Conversation(AGENT, AGENT, as_text(tab.get("tabId")) or "", begun, said, title, folder)


def _said(messages: list[dict[str, Any]], begun: int, skipped: Skipped) -> Iterator[Said]:
    """Messages in their order. One without a time has that of the one before it, so that it keeps its place."""
    moment = begun
    for one in messages:
        kind = one.get("type")
        role = _ROLES.get(kind) if isinstance(kind, int | str) else None
        if role is None:
            skipped["message of unknown form"] += 1
            continue
        moment = max(moment_of(one.get("createdAt")), moment)
        thought = as_text(as_object(one.get("thinking")).get("text")) or as_text(one.get("thinking")) or ""
        blocks = [
            ("thinking", plain(thought)),
            (role, plain(as_text(one.get("text")) or as_text(one.get("rawText")) or "")),
        ]
        if as_object(one.get("toolFormerData")):
            skipped[TOOL_CALL] += 1
        if texts := joined(blocks):
            yield Said(as_text(one.get("bubbleId")) or as_text(one.get("id")) or "", moment, texts)


def _parsed(data: bytes, skipped: Skipped) -> object:
    try:
        found = parse_json(data)
        return parse_json(found.encode()) if isinstance(found, str) else found
    except ValueError:
        skipped[DAMAGED] += 1
        return {}
