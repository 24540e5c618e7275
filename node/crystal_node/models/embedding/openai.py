"""OpenAI's API for embeddings, and servers that speak the same."""

from collections.abc import Sequence

import msgspec

from crystal_core.embed.port import EmbedderRefused
from crystal_node.models.embedding.remote import HttpEmbedder

OPENAI_URL = "https://api.openai.com/v1"


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Row]


class OpenAiEmbedder(HttpEmbedder):
    """One model of OpenAI, or of the server at ``url`` (with its ``/v1``)."""

    provider = "openai"
    batch_texts = 128
    batch_bytes = 192 * 1024

    @staticmethod
    def _secret(key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    def _ask(self, inputs: Sequence[str], *, query: bool, seconds: float) -> list[list[float]]:
        body = {"model": self._model, "input": list(inputs), "encoding_format": "float"}
        answer = self._http.post("/embeddings", body, _Answer, seconds=seconds, patience=self._patience)
        rows = sorted(answer.data, key=lambda row: row.index)
        if [row.index for row in rows] != list(range(len(inputs))):
            raise EmbedderRefused(f"{self._http.host} gives other vectors than were asked for")
        return [row.embedding for row in rows]
