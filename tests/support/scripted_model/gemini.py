"""Google's Gemini API."""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.scripted_model.anthropic import pieces, tools_of
from tests.support.scripted_model.script import Asked, Reply, Turn


def read(body: dict[str, Any], model: str) -> Asked:
    """The request in the one form."""
    turns: list[Turn] = []
    if "systemInstruction" in body:
        turns.append(Turn("system", _text(body["systemInstruction"].get("parts", []))))
    for content in body.get("contents", []):
        parts = content.get("parts", [])
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        turns += [Turn("tool", json.dumps(result.get("response"))) for result in results]
        said = _text(parts)
        calls = any("functionCall" in part for part in parts)
        if said or calls:
            turns.append(Turn("assistant" if content.get("role") == "model" else "user", said))
    declared: list[list[dict[str, Any]]] = [tool.get("functionDeclarations", []) for tool in tools_of(body)]
    return Asked("gemini", model, turns, [one["name"] for some in declared for one in some], body)


def _text(parts: list[dict[str, Any]]) -> str:
    return "\n".join(part["text"] for part in parts if "text" in part)


def whole(reply: Reply, model: str) -> dict[str, Any]:
    """The answer in one piece."""
    parts: list[dict[str, Any]] = []
    if reply.thinking:
        parts.append({"text": reply.thinking, "thought": True})
    if reply.text:
        parts.append({"text": reply.text})
    if reply.call is not None:
        parts.append({"functionCall": {"name": reply.call.name, "args": reply.call.arguments}})
    return _answer(parts, model, ended=True)


def streamed(reply: Reply, model: str) -> Iterator[dict[str, Any]]:
    """The answer as chunks."""
    (candidate,) = whole(reply, model)["candidates"]
    parts: list[dict[str, Any]] = []
    for part in candidate["content"]["parts"]:
        parts += (
            [part | {"text": piece} for piece in pieces(part["text"])]
            if "text" in part and "thought" not in part
            else [part]
        )
    for index, part in enumerate(parts):
        yield _answer([part], model, ended=index == len(parts) - 1)


def _answer(parts: list[dict[str, Any]], model: str, *, ended: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    return {
        "candidates": [candidate | ({"finishReason": "STOP"} if ended else {})],
        "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120},
        "modelVersion": model,
    }
