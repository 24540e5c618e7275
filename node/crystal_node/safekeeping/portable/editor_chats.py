"""Chats of Copilot in VS Code: what "Chat: Export Chat…" writes, and the sessions that the editor itself keeps.

    export      {"responderUsername", "initialLocation", "requests": [...]}
    session     the same with ``sessionId``, ``creationDate``, ``customTitle``: ``chatSessions/<id>.json`` below the folder of a
                workspace, ``globalStorage/emptyWindowChatSessions`` without one
    its log     ``<id>.jsonl``, since 2026: lines with ``kind`` 0 (the session), 1 (set), 2 (push, cut at ``i``), 3 (delete)

A request has ``message`` (a text, or an object with ``text``), ``timestamp`` and ``response``: Markdown in objects with
``value`` and no ``kind``, among steps of the editor. Read in VS Code's source: ``chatModel.ts``, ``objectMutationLog.ts``.
"""

from collections.abc import Iterator
from typing import Any

from crystal_node.capture.json_values import as_array, as_object, as_text, is_array, is_object
from crystal_node.capture.messages import derived_id, joined, moment_of, plain
from crystal_node.safekeeping.portable.conversation import TOOL_CALL, Conversation, Said, Skipped

AGENT = "copilot-chat"
PATH_PARTS_MAX = 64
"""Of a change in a session's log."""
_TOOLS = frozenset(("prepareToolInvocation", "toolInvocation", "toolInvocationSerialized"))


class LogDamaged(Exception):
    """A line of a session's log does not fit those before it."""


def is_session(found: dict[str, Any]) -> bool:
    """Whether an object is an exported chat or a session."""
    return is_array(found.get("requests")) and any(
        name in found for name in ("responderUsername", "initialLocation", "sessionId")
    )


def is_log_line(found: dict[str, Any]) -> bool:
    """Whether an object is a line of a session's log."""
    kind = found.get("kind")
    return (kind == 0 and is_object(found.get("v"))) or (kind in (1, 2, 3) and is_array(found.get("k")))


def applied(session: dict[str, Any] | None, line: dict[str, Any]) -> dict[str, Any]:
    """The session after a line of its log; it is changed in place. Raises LogDamaged."""
    kind = line["kind"]
    if kind == 0:
        return as_object(line["v"])
    path = as_array(line["k"])
    if session is None or not 0 < len(path) <= PATH_PARTS_MAX:
        raise LogDamaged
    at: object = session
    for step in path[:-1]:
        at = _stepped(at, step)
    last = path[-1]
    if kind == 2:
        _push(at, last, as_array(line.get("v")), line.get("i"))
    elif is_object(at) and isinstance(last, str):
        if kind == 1:
            at[last] = line.get("v")
        else:
            at.pop(last, None)
    elif is_array(at) and isinstance(last, int) and 0 <= last < len(at):
        at[last] = line.get("v") if kind == 1 else None
    else:
        raise LogDamaged
    return session


def editor_chat(found: dict[str, Any], folder: str, skipped: Skipped) -> Conversation:
    """The conversation. An export and the session that it was made of have the same id, that of their first request."""
    requests = [as_object(one) for one in as_array(found.get("requests"))]
    begun = moment_of(found.get("creationDate")) or next(
        (at for one in requests if (at := moment_of(one.get("timestamp")))), 0
    )
    first = next((name for one in requests if (name := as_text(one.get("requestId")))), "")
    session = derived_id(AGENT, first) if first else as_text(found.get("sessionId")) or ""
    said = [said for one in requests for said in _said(one, skipped)]
    return Conversation(AGENT, AGENT, session, begun, said, as_text(found.get("customTitle")) or "", folder)


def _said(request: dict[str, Any], skipped: Skipped) -> Iterator[Said]:
    moment = moment_of(request.get("timestamp"))
    message = request.get("message")
    asked = plain(as_text(message) or as_text(as_object(message).get("text")) or "")
    name = as_text(request.get("requestId")) or ""
    if asked:
        yield Said(name, moment, {"user": asked})
    answered = joined(list(_answer(as_array(request.get("response")), skipped)))
    if answered:
        answer = as_text(request.get("responseId")) or (derived_id(name, "response") if name else "")
        yield Said(answer, moment, answered)


def _answer(parts: list[object], skipped: Skipped) -> Iterator[tuple[str, str]]:
    """The answer's texts with their role; what stands between two steps of the editor is one."""
    run: list[str] = []
    for part in parts:
        fields = as_object(part)
        kind = as_text(fields.get("kind"))
        text = as_text(fields.get("value"))
        if isinstance(part, str) or (kind is None and text is not None):
            run.append(as_text(part) or text or "")
        elif kind in ("markdownContent", "markdownVuln"):
            run.append(as_text(as_object(fields.get("content")).get("value")) or "")
        elif kind == "inlineReference":
            run.append(_reference(fields))
        else:
            yield "assistant", plain("".join(run))
            run = []
            if kind == "thinking":
                thought = [text] if text else [as_text(one) or "" for one in as_array(fields.get("value"))]
                yield "thinking", plain("\n".join(thought))
            else:
                skipped[TOOL_CALL if kind in _TOOLS else "step of the editor"] += 1
    yield "assistant", plain("".join(run))


def _reference(fields: dict[str, Any]) -> str:
    """What a sentence shows for a file or a symbol."""
    target = as_object(fields.get("inlineReference"))
    place = as_object(target.get("uri")) or as_object(as_object(target.get("location")).get("uri")) or target
    shown = as_text(fields.get("name")) or as_text(target.get("name")) or as_text(place.get("path")) or ""
    return f"`{shown.rpartition('/')[2]}`" if shown else ""


def _stepped(at: object, step: object) -> object:
    if is_object(at) and isinstance(step, str) and step in at:
        return at[step]
    if is_array(at) and isinstance(step, int) and 0 <= step < len(at):
        return at[step]
    raise LogDamaged


def _push(at: object, name: object, values: list[object], cut: object) -> None:
    target: object
    if is_object(at) and isinstance(name, str):
        target = at.get(name)
        if target is None:
            target = at[name] = list[object]()
    else:
        target = _stepped(at, name)
    if not is_array(target):
        raise LogDamaged
    if isinstance(cut, int) and cut >= 0:
        del target[cut:]
    target.extend(values)
