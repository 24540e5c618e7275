"""Google's API for embeddings, which tells documents and queries apart."""

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from crystal_node.models.embedding.remote import HttpEmbedder

GOOGLE_URL = "https://generativelanguage.googleapis.com/v1beta"


class _Row(msgspec.Struct):
    values: list[float]


class _Answer(msgspec.Struct):
    embeddings: list[_Row]


class GoogleEmbedder(HttpEmbedder):
    """One model of Google."""

    provider = "google"
    batch_texts = 100
    batch_bytes = 96 * 1024

    @staticmethod
    def _secret(key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}

    def _ask(self, inputs: Sequence[str], *, query: bool, seconds: float) -> list[list[float]]:
        name = f"models/{self._model}"
        kind = "RETRIEVAL_QUERY" if query else "RETRIEVAL_DOCUMENT"
        body = {
            "requests": [
                {"model": name, "content": {"parts": [{"text": text}]}, "taskType": kind} for text in inputs
            ]
        }
        path = f"/models/{quote(self._model, safe='')}:batchEmbedContents"
        answer = self._http.post(path, body, _Answer, seconds=seconds, patience=self._patience)
        return [row.values for row in answer.embeddings]
