"""A real HTTP server that speaks the APIs of the language models' providers, with a model that the test writes.

It keeps every request that it got. Faults are served in order before the model answers: a status, a body, a header, a
connection that breaks, or an answer that never comes. It counts a token for every four bytes, as providers bill.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from tests.support.serving import Failing, Fault, serving

BYTES_PER_TOKEN = 4

Model = Callable[[str, str], str]
"""What it answers to the words of the system and of the user."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    system: str
    data: str

    @property
    def tokens_max(self) -> int:
        options = self.body.get("options", {})
        for name in ("max_tokens", "max_completion_tokens"):
            if name in self.body:
                return int(self.body[name])
        return int(options["num_predict"])


@dataclass
class LlmServer:
    """The server, while it runs. ``refuses``: ends with the provider's own way of declining; ``cut``: ends at the limit."""

    url: str
    model: Model
    models: list[str] = field(default_factory=lambda: ["test-model"])
    embedders: list[str] = field(default_factory=list[str])
    asked: list[Asked] = field(default_factory=list[Asked])
    faults: list[Fault] = field(default_factory=list[Fault])
    refuses: bool = False
    cut: bool = False
    counts: bool = True
    tokens: int = 0
    """What its owner would have to pay, in and out."""

    @property
    def openai(self) -> str:
        return f"{self.url}/v1"


@contextlib.contextmanager
def llm_server(model: Model | None = None) -> Generator[LlmServer]:
    """Runs one on a free port of this machine."""
    stopping = threading.Event()

    class Handler(_Handler):
        state: LlmServer
        stop = stopping

    with serving(Handler) as url:
        Handler.state = LlmServer(url, model or (lambda _system, _data: "Hello."))
        try:
            yield Handler.state
        finally:
            stopping.set()


class _Handler(Failing):
    state: LlmServer

    def do_GET(self) -> None:  # noqa: N802  (its name in the base class)
        names = [*self.state.embedders, *self.state.models]
        if self.path == "/v1/models":
            self._send({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})
        elif self.path == "/api/tags":
            embed = set(self.state.embedders)
            self._send(
                {
                    "models": [
                        {"name": name, "details": {"family": "nomic-bert" if name in embed else "llama"}}
                        for name in names
                    ]
                }
            )
        else:
            self._send({"error": "not found"}, 404)

    def do_POST(self) -> None:  # noqa: N802  (its name in the base class)
        body = json.loads(self.body())
        messages = {message["role"]: message["content"] for message in body["messages"]}
        system, data = messages.get("system", body.get("system", "")), messages["user"]
        asked = Asked(
            self.path, {name.lower(): value for name, value in self.headers.items()}, body, system, data
        )
        self.state.asked.append(asked)
        if self.state.faults:
            self.fail(self.state.faults.pop(0))
            return
        text = self.state.model(system, data)
        tokens_in = len((system + data).encode()) // BYTES_PER_TOKEN
        tokens_out = len(text.encode()) // BYTES_PER_TOKEN
        if tokens_out > asked.tokens_max:
            text, tokens_out = (
                text.encode()[: asked.tokens_max * BYTES_PER_TOKEN].decode("utf-8", "ignore"),
                asked.tokens_max,
            )
        self.state.tokens += tokens_in + tokens_out
        speaks = {
            "/v1/chat/completions": self._chat,
            "/v1/messages": self._messages,
            "/api/chat": self._ollama,
        }
        if self.path not in speaks:
            self._send({"error": {"message": "no such path"}}, 404)
            return
        self._send(speaks[self.path](body["model"], text, tokens_in, tokens_out))

    def _chat(self, model: str, text: str, tokens_in: int, tokens_out: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if self.state.refuses:
            message |= {"content": None, "refusal": "I cannot help with that."}
        usage = {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        }
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": model,
            "choices": [
                {"index": 0, "message": message, "finish_reason": "length" if self.state.cut else "stop"}
            ],
        } | ({"usage": usage} if self.state.counts else {})

    def _messages(self, model: str, text: str, tokens_in: int, tokens_out: int) -> dict[str, Any]:
        stop = "refusal" if self.state.refuses else "max_tokens" if self.state.cut else "end_turn"
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [{"type": "text", "text": text}],
            "stop_reason": stop,
            "usage": {"input_tokens": tokens_in, "output_tokens": tokens_out},
        }

    def _ollama(self, model: str, text: str, tokens_in: int, tokens_out: int) -> dict[str, Any]:
        counts = {"prompt_eval_count": tokens_in, "eval_count": tokens_out}
        return {
            "model": model,
            "message": {"role": "assistant", "content": text},
            "done": True,
            "done_reason": "length" if self.state.cut else "stop",
        } | (counts if self.state.counts else {})

    def _send(self, document: dict[str, Any], status: int = 200) -> None:
        self.write(json.dumps(document).encode(), status, {})
