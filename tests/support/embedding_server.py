"""A real HTTP server that speaks the APIs of the embedding providers: Ollama's, OpenAI's and Google's.

Its model is a bag of words: each word has a direction of its own, so texts that share words are near. ``seed`` makes it another
model under the same name, ``dimensions`` one of another size. It keeps every request that it got; faults are served in order.
"""

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support.serving import Failing, Fault, serving

DIMENSIONS = 48


@dataclass(frozen=True, slots=True)
class AskedFor:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    model: str
    inputs: tuple[str, ...]
    body: dict[str, Any]


@dataclass
class EmbeddingServer:
    """The server, while it runs. ``too_long``: inputs of more characters are refused; ``spoil`` changes what is answered."""

    url: str
    dimensions: int = DIMENSIONS
    seed: str = "one"
    too_long: int = 0
    asked: list[AskedFor] = field(default_factory=list[AskedFor])
    faults: list[Fault] = field(default_factory=list[Fault])
    down: bool = False
    """Every request is answered with 503."""
    spoil: Callable[[list[list[float]]], list[list[float]]] = lambda rows: rows

    @property
    def openai(self) -> str:
        return f"{self.url}/v1"

    @property
    def google(self) -> str:
        return f"{self.url}/v1beta"

    @property
    def inputs(self) -> list[str]:
        """All that it was ever given to read, also what it refused."""
        return [text for asked in self.asked for text in asked.inputs]

    def vector(self, text: str) -> list[float]:
        """Not of unit length: that is for the client to see to."""
        words = [word.strip(".,:;!?") for word in text.lower().split()] or [""]
        total = np.zeros(self.dimensions)
        for word in words:
            digest = hashlib.sha256(f"{self.seed}/{word}".encode("utf-8", "replace")).digest()
            total += np.random.default_rng(int.from_bytes(digest[:8], "big")).standard_normal(self.dimensions)
        return [round(float(value), 6) for value in total * 3.0]


@contextlib.contextmanager
def embedding_server() -> Generator[EmbeddingServer]:
    """Runs one on a free port of this machine."""
    stopping = threading.Event()

    class Handler(_Handler):
        state: EmbeddingServer
        stop = stopping

    with serving(Handler) as url:
        Handler.state = EmbeddingServer(url)
        try:
            yield Handler.state
        finally:
            stopping.set()


class _Handler(Failing):
    state: EmbeddingServer

    def do_POST(self) -> None:  # noqa: N802  (its name in the base class)
        body = json.loads(self.body())
        google = self.path.endswith(":batchEmbedContents")
        if google:
            model = self.path.rpartition("/")[2].partition(":")[0]
            inputs = [request["content"]["parts"][0]["text"] for request in body["requests"]]
        else:
            model = body["model"]
            inputs = [body["input"]] if isinstance(body["input"], str) else body["input"]
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.state.asked.append(AskedFor(self.path, headers, model, tuple(inputs), body))
        if self.state.down:
            self.write(b'{"error": "overloaded"}', 503, {"Retry-After": "5"})
        elif self.state.faults:
            self.fail(self.state.faults.pop(0))
        elif self.state.too_long and max(len(text) for text in inputs) > self.state.too_long:
            words = {"error": {"message": "the input exceeds the context length", "code": 400}}
            self.write(json.dumps(words).encode(), 400, {})
        else:
            rows = self.state.spoil([self.state.vector(text) for text in inputs])
            self.write(json.dumps(self._answer(model, rows, google=google)).encode(), 200, {})

    def _answer(self, model: str, rows: list[list[float]], *, google: bool) -> dict[str, Any]:
        if google:
            return {"embeddings": [{"values": row} for row in rows]}
        if self.path == "/api/embed":
            return {"model": model, "embeddings": rows, "total_duration": 1, "prompt_eval_count": 1}
        # OpenAI does not promise an order: the index counts.
        data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "data": data[::-1], "model": model, "usage": usage}
