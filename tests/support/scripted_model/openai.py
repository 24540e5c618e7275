"""OpenAI's two APIs: Responses, and Chat Completions."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from tests.support.scripted_model.anthropic import pieces, tools_of
from tests.support.scripted_model.script import Asked, Reply, Role, Turn

_numbers = itertools.count(1)
_ROLES: dict[str, Role] = {"assistant": "assistant", "user": "user", "tool": "tool"}
_TOKEN_CHARS = 4


def read_responses(body: dict[str, Any]) -> Asked:
    """A request of Responses in the one form."""
    turns = [Turn("system", body["instructions"])] if body.get("instructions") else []
    given: str | list[dict[str, Any]] = body.get("input") or []
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        match item.get("type", "message"):
            case "message":
                turns.append(Turn(_ROLES.get(item["role"], "system"), _text(item["content"])))
            case "function_call" | "custom_tool_call":
                turns.append(Turn("assistant", str(item.get("arguments") or item.get("input"))))
            case "function_call_output" | "custom_tool_call_output":
                turns.append(Turn("tool", _text(item["output"])))
            case _:
                pass
    names: list[str] = []
    for tool in tools_of(body):
        if tool.get("type") == "namespace":
            names += [f"{tool['name']}{inner['name']}" for inner in tool["tools"]]
        elif "name" in tool:
            names.append(tool["name"])
    return Asked("responses", body["model"], turns, names, body)


def read_chat(body: dict[str, Any]) -> Asked:
    """A request of Chat Completions in the one form."""
    turns = [
        Turn(_ROLES.get(message["role"], "system"), _text(message.get("content")))
        for message in body["messages"]
    ]
    names = [tool["function"]["name"] for tool in tools_of(body)]
    return Asked("chat", body["model"], turns, names, body)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts: list[Any] = content or []
    return "\n".join(part if isinstance(part, str) else str(part.get("text") or "") for part in parts)


def _items(reply: Reply, body: dict[str, Any]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.thinking:
        summary = [{"type": "summary_text", "text": reply.thinking}]
        items.append({"type": "reasoning", "id": f"rs_{next(_numbers)}", "summary": summary})
    if reply.text:
        part: dict[str, Any] = {"type": "output_text", "text": reply.text, "annotations": []}
        items.append(
            {"type": "message", "id": f"msg_{next(_numbers)}", "role": "assistant", "content": [part]}
        )
    if reply.call is not None:
        items.append(
            {
                "type": "function_call",
                "id": f"fc_{next(_numbers)}",
                "call_id": f"call_{next(_numbers)}",
                "arguments": json.dumps(reply.call.arguments),
                **_named(reply.call.name, body),
            }
        )
    return items


def _named(name: str, body: dict[str, Any]) -> dict[str, str]:
    """A tool of a namespace is called by both names."""
    for tool in tools_of(body):
        if tool.get("type") == "namespace":
            for inner in tool["tools"]:
                if name == f"{tool['name']}{inner['name']}":
                    return {"name": inner["name"], "namespace": tool["name"]}
    return {"name": name}


def whole_response(reply: Reply, body: dict[str, Any]) -> dict[str, Any]:
    """The answer of Responses in one piece."""
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 120,
    }
    return {
        "id": f"resp_{next(_numbers)}",
        "object": "response",
        "status": "completed",
        "model": body["model"],
        "output": _items(reply, body),
        "usage": usage,
    }


def streamed_response(reply: Reply, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The answer of Responses as events."""
    response = whole_response(reply, body)
    begun: dict[str, Any] = {"status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": response | begun}
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        opened = item | ({"content": []} if item["type"] == "message" else {})
        yield {"type": "response.output_item.added", "output_index": index, "item": opened}
        if item["type"] == "message":
            for piece in pieces(item["content"][0]["text"]):
                yield {"type": "response.output_text.delta", **place, "content_index": 0, "delta": piece}
        elif item["type"] == "reasoning":
            part = {"summary_index": 0, "delta": item["summary"][0]["text"]}
            yield {"type": "response.reasoning_summary_text.delta", **place, **part}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": response}


def whole_chat(reply: Reply, body: dict[str, Any]) -> dict[str, Any]:
    """The answer of Chat Completions in one piece."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.call is not None:
        function = {"name": reply.call.name, "arguments": json.dumps(reply.call.arguments)}
        message["tool_calls"] = [{"id": f"call_{next(_numbers)}", "type": "function", "function": function}]
    finish = "stop" if reply.call is None else "tool_calls"
    # Programs that compact a conversation compare how much it was with how much it became.
    asked, said = (len(json.dumps(each)) // _TOKEN_CHARS + 1 for each in (body["messages"], message))
    return {
        "id": f"chatcmpl-{next(_numbers)}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said},
    }


def streamed_chat(reply: Reply, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The answer of Chat Completions as chunks."""
    answer = whole_chat(reply, body)
    (choice,) = answer["choices"]
    head = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if reply.thinking:
        deltas.append({"reasoning_content": reply.thinking})
    deltas += [{"content": piece} for piece in pieces(reply.text)]
    if reply.call is not None:
        (call,) = message["tool_calls"]
        deltas.append({"tool_calls": [{"index": 0, **call}]})
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield {**head, "choices": [], "usage": answer["usage"]}
