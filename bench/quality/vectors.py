"""Vectors kept from run to run, so that only the first one waits for the model.

One SQLite file in the system's folder for temporary files, shared by all sets and safe with several processes. A text's
vectors stand under the embedder's identity and the text's hash; the text itself is not kept. Delete the file to begin anew.
"""

import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import apsw
import numpy as np
from numpy.typing import NDArray

from crystal_core.embed.port import VECTOR_COMPONENT_BYTES, Embedder

FILE = "crystal-bench-vectors.db"
TEXTS_TOGETHER = 256
"""Texts that are embedded and kept at a time: what an interrupted run loses at most."""
BUSY_MILLISECONDS = 60_000


class KeptVectors:
    """An embedder that asks another one only for what it has not embedded before."""

    def __init__(self, embedder: Embedder, path: Path | None = None) -> None:
        self._embedder = embedder
        self._kept = apsw.Connection(str(path or Path(tempfile.gettempdir()) / FILE))
        self._kept.set_busy_timeout(BUSY_MILLISECONDS)
        self._kept.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
        self._kept.execute(
            "CREATE TABLE IF NOT EXISTS vectors (model TEXT, query INTEGER, text BLOB, vectors BLOB,"
            " PRIMARY KEY (model, query, text))"
        )

    @property
    def identity(self) -> str:
        return self._embedder.identity

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        size = self.dimensions * VECTOR_COMPONENT_BYTES
        found = {text: self._find(text, query=False) for text in dict.fromkeys(texts)}
        lacking = [text for text, kept in found.items() if kept is None]
        for start in range(0, len(lacking), TEXTS_TOGETHER):
            some = lacking[start : start + TEXTS_TOGETHER]
            made = [b"".join(windows) for windows in self._embedder.embed_windows(some)]
            self._keep(some, made, query=False)
            found.update(zip(some, made, strict=True))
        rows = [found[text] or b"" for text in texts]
        return [[row[at : at + size] for at in range(0, len(row), size)] for row in rows]

    def embed_query(self, text: str) -> NDArray[np.float32]:
        kept = self._find(text, query=True)
        if kept is None:
            kept = self._embedder.embed_query(text).astype("<f4").tobytes()
            self._keep([text], [kept], query=True)
        return np.frombuffer(kept, "<f4")

    def close(self) -> None:
        self._kept.close()

    def _find(self, text: str, *, query: bool) -> bytes | None:
        row = self._kept.execute(
            "SELECT vectors FROM vectors WHERE model = ? AND query = ? AND text = ?",
            (self.identity, query, _hash(text)),
        ).fetchone()
        return None if row is None else bytes(row[0])

    def _keep(self, texts: Sequence[str], vectors: Sequence[bytes], *, query: bool) -> None:
        with self._kept:
            self._kept.executemany(
                "INSERT OR IGNORE INTO vectors VALUES (?, ?, ?, ?)",
                [
                    (self.identity, query, _hash(text), made)
                    for text, made in zip(texts, vectors, strict=True)
                ],
            )


def _hash(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
