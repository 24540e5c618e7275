"""Conversations of ChatGPT and of claude.ai, each one object of the export.

    ChatGPT     ``mapping``: nodes by id, each with a message (``author.role``, ``create_time``, ``content.parts``); a tree, of
                which all branches were said
    claude.ai   ``chat_messages``: ``sender`` (human or assistant), ``created_at``, ``content`` in blocks, or ``text``

Left out are calls of tools, pictures and files, and what the service hides from its own page.
"""

from collections.abc import Iterator
from typing import Any

from crystal_node.capture.json_values import as_array, as_object, as_text, is_array, is_object
from crystal_node.capture.messages import joined, moment_of, plain
from crystal_node.safekeeping.portable.conversation import NOBODY, TOOL_CALL, Conversation, Said, Skipped

_ROLES = {"user": "user", "human": "user", "assistant": "assistant"}


def web_chat(found: dict[str, Any], skipped: Skipped) -> Conversation | None:
    """The conversation, None if it is of neither service."""
    if is_object(found.get("mapping")):
        agent, source, said = "chatgpt", "chatgpt", _of_chatgpt(found, skipped)
        session = as_text(found.get("conversation_id")) or as_text(found.get("id"))
    elif is_array(found.get("chat_messages")):
        agent, source, said = "claude-ai", "claude.ai", _of_claude(found, skipped)
        session = as_text(found.get("uuid"))
    else:
        return None
    begun = moment_of(found.get("create_time")) or moment_of(found.get("created_at"))
    title = as_text(found.get("title")) or ""
    return Conversation(agent, source, session or "", begun, list(said), title)


def _of_chatgpt(found: dict[str, Any], skipped: Skipped) -> Iterator[Said]:
    for node in as_object(found["mapping"]).values():
        message = as_object(as_object(node).get("message"))
        role = _ROLES.get(as_text(as_object(message.get("author")).get("role")) or "", "")
        metadata = as_object(message.get("metadata"))
        hidden = metadata.get("is_visually_hidden_from_conversation") is True
        content = as_object(message.get("content"))
        kind = as_text(content.get("content_type")) or ""
        if not message or not role or hidden:
            if message:
                skipped[NOBODY] += 1
            continue
        blocks = [("thinking", _thought(one)) for one in as_array(content.get("thoughts"))]
        if kind in ("text", "multimodal_text"):
            parts = [
                as_text(one) or as_text(as_object(one).get("text")) for one in as_array(content.get("parts"))
            ]
            skipped.update("picture or file" for one in parts if one is None)
            blocks += [(role, plain(one)) for one in parts if one]
        elif not blocks:
            skipped[TOOL_CALL] += 1
        yield Said(
            as_text(message.get("id")) or "",
            moment_of(message.get("create_time")),
            joined(blocks),
            as_text(metadata.get("model_slug")) or "",
        )


def _of_claude(found: dict[str, Any], skipped: Skipped) -> Iterator[Said]:
    for message in map(as_object, as_array(found["chat_messages"])):
        role = _ROLES.get(as_text(message.get("sender")) or "", "")
        if not role:
            skipped[NOBODY] += 1
            continue
        blocks: list[tuple[str, str]] = []
        for block in map(as_object, as_array(message.get("content"))):
            if (text := as_text(block.get("text"))) is not None and block.get("type") == "text":
                blocks.append((role, plain(text)))
            elif (thought := as_text(block.get("thinking"))) is not None:
                blocks.append(("thinking", plain(thought)))
            else:
                skipped[TOOL_CALL] += 1
        if not any(text for said_by, text in blocks if said_by == role):
            blocks.append((role, plain(as_text(message.get("text")) or "")))
        yield Said(as_text(message.get("uuid")) or "", moment_of(message.get("created_at")), joined(blocks))


def _thought(value: object) -> str:
    fields = as_object(value)
    return plain("\n".join(filter(None, (as_text(fields.get(name)) for name in ("summary", "content")))))
