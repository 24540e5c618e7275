"""Ollama's own API for embeddings.

It keeps to ``truncate``: a model with a short context reads the beginning of a window then, in place of nothing.
"""

import time
from collections.abc import Sequence

import msgspec

from crystal_node.embedding.http import EmbedHttp, Pause
from crystal_node.embedding.remote import RemoteEmbedder
from crystal_node.embedding.windows import Scheme


class _Answer(msgspec.Struct):
    embeddings: list[list[float]]


class OllamaEmbedder(RemoteEmbedder):
    """One model of an Ollama server."""

    def __init__(
        self,
        url: str,
        model: str,
        dimensions: int,
        scheme: Scheme,
        *,
        before: tuple[str, str] = ("", ""),
        patience: float = 0.0,
        pause: Pause = time.sleep,
    ) -> None:
        super().__init__("ollama", model, dimensions, scheme, before=before, patience=patience)
        self._http = EmbedHttp(url, pause=pause)

    def _ask(self, inputs: Sequence[str], *, query: bool, seconds: float) -> list[list[float]]:
        body = {"model": self._model, "input": list(inputs), "truncate": True}
        answer = self._http.post("/api/embed", body, _Answer, seconds=seconds, patience=self._patience)
        return answer.embeddings

    def close(self) -> None:
        super().close()
        self._http.close()
