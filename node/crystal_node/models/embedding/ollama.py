"""Ollama's own API for embeddings.

With ``truncate`` a model with a short context reads the beginning of a window instead of refusing it.
"""

from collections.abc import Sequence

import msgspec

from crystal_node.models.embedding.remote import HttpEmbedder


class _Answer(msgspec.Struct):
    embeddings: list[list[float]]


class OllamaEmbedder(HttpEmbedder):
    """One model of an Ollama server."""

    provider = "ollama"

    def _ask(self, inputs: Sequence[str], *, query: bool, seconds: float) -> list[list[float]]:
        body = {"model": self._model, "input": list(inputs), "truncate": True}
        answer = self._http.post("/api/embed", body, _Answer, seconds=seconds, patience=self._patience)
        return answer.embeddings
