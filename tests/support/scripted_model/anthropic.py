"""Anthropic's Messages API."""

import itertools
from collections.abc import Iterator
from typing import Any

from crystal_node.capture.json_values import is_object
from tests.support.scripted_model.script import Asked, Reply, Turn

_numbers = itertools.count(1)


def read(body: dict[str, Any]) -> Asked:
    """The request in the one form."""
    turns = [Turn("system", _text(body.get("system")))] if body.get("system") else []
    for message in body.get("messages", []):
        content = message["content"]
        results = [part for part in content if is_object(part) and part.get("type") == "tool_result"]
        turns += [Turn("tool", _text(part.get("content"))) for part in results]
        rest = content if isinstance(content, str) else [part for part in content if part not in results]
        if rest:
            turns.append(Turn(message["role"], _text(rest)))
    return Asked("anthropic", body["model"], turns, [tool["name"] for tool in tools_of(body)], body)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts: list[Any] = content or []
    return "\n".join(
        part if isinstance(part, str) else str(part.get("text") or part.get("thinking") or "")
        for part in parts
    )


def _blocks(reply: Reply) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if reply.thinking:
        blocks.append({"type": "thinking", "thinking": reply.thinking, "signature": "c2lnbmF0dXJl"})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    if reply.call is not None:
        number = f"toolu_{next(_numbers):012d}"
        blocks.append(
            {"type": "tool_use", "id": number, "name": reply.call.name, "input": reply.call.arguments}
        )
    return blocks


def whole(reply: Reply, model: str) -> dict[str, Any]:
    """The answer in one piece."""
    return {
        "id": f"msg_{next(_numbers):012d}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": _blocks(reply),
        "stop_reason": "end_turn" if reply.call is None else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 20},
    }


def streamed(reply: Reply, model: str) -> Iterator[dict[str, Any]]:
    """The answer as events."""
    message = whole(reply, model)
    begun: dict[str, Any] = {
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 100, "output_tokens": 1},
    }
    yield {"type": "message_start", "message": message | begun}
    for index, block in enumerate(message["content"]):
        kind = block["type"]
        empty: dict[str, dict[str, Any]] = {
            "text": {"text": ""},
            "thinking": {"thinking": "", "signature": ""},
            "tool_use": {"input": {}},
        }
        yield {"type": "content_block_start", "index": index, "content_block": block | empty[kind]}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
        "usage": {"output_tokens": 20},
    }
    yield {"type": "message_stop"}


def _deltas(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in pieces(block["text"]))
        case "thinking":
            yield {"type": "thinking_delta", "thinking": block["thinking"]}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case _:
            from json import dumps

            yield from (
                {"type": "input_json_delta", "partial_json": piece} for piece in pieces(dumps(block["input"]))
            )


def tools_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools that a request offers."""
    tools: list[dict[str, Any]] = body.get("tools") or []
    return tools


def pieces(text: str) -> list[str]:
    """A text in pieces, as a model sends it."""
    return [text[at : at + 12] for at in range(0, len(text), 12)]
