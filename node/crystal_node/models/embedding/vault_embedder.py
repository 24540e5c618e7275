"""Embeds queries with the current model of the open memory.

A memory can change its model while a process runs (`crystal embed migrate` on the Core, a snapshot), and a person can change
the settings. So the recorded model is read for each query, and another embedder is chosen when it or the embedding settings
have changed. Without an embedder ``embed_query`` raises NoEmbedding, whose message names the fix; the search continues by
keyword and shows it.

``identity``, ``dimensions``, ``reason`` and ``look`` read the database and belong to its thread; the rest is thread-safe.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from crystal_core.database import Database
from crystal_core.embed.port import AnotherModel, EmbeddingError, NoEmbedding
from crystal_core.state import mirror_log
from crystal_node.base.settings import Settings, with_current_options
from crystal_node.models.embedding.embedder import HeldEmbedder, compare_with
from crystal_node.models.embedding.selection import query_embedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class VaultEmbedder:
    """Close it, or use it as a context; the database stays open."""

    def __init__(self, settings: "Settings", database: Database, *, worker: bool = False) -> None:
        """``worker``: the built-in model runs in a process of its own."""
        self._settings = settings
        self._worker = worker
        self._database = database
        self._chosen: HeldEmbedder | None = None
        self._identity = ""
        self._reason = "the memory was not looked at yet"
        self._for: tuple[object, ...] | None = None

    @property
    def identity(self) -> str:
        """The model of the memory's vectors; "" if it has none."""
        self.look()
        return self._identity

    @property
    def dimensions(self) -> int:
        """Of the memory's vectors."""
        return int(self._database.value("SELECT dimensions FROM index_state"))

    @property
    def reason(self) -> str:
        """Why queries are not embedded; "" if they are, as far as is known without a request."""
        self.look()
        return self._reason

    @property
    def loaded(self) -> bool:
        return self._chosen is not None and self._chosen.loaded

    @property
    def in_process(self) -> bool:
        """Whether the model runs on this machine, in this process or its own."""
        return bool(getattr(self._chosen, "in_process", True))

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        """As the port says. Raises EmbeddingError."""
        return self._needed().embed_windows(texts)

    def embed_query(self, text: str) -> "NDArray[np.float32]":
        """As the port says. Raises EmbeddingError."""
        embedder = self._needed()
        try:
            return embedder.embed_query(text)
        except EmbeddingError as error:
            if isinstance(error, AnotherModel):
                self._for = None  # compared with another text next time: all vectors may have been made again
            raise NoEmbedding(f"{error}. {error.hint}".rstrip(".")) from error

    def look(self) -> None:
        """Reads the memory's model and the settings, and chooses an embedder again if they have changed."""
        self._settings = with_current_options(self._settings)
        self._identity = self._recorded()
        wanted = (self._identity, self._settings.embedding)
        if wanted != self._for:
            self.close()
            self._chosen, self._reason = query_embedder(self._settings, self._identity, worker=self._worker)
            compare_with(self._chosen, self._database)
            self._for = wanted

    def prepare(self) -> None:
        """Loads a model that runs on this machine, in this process or its own. Asks no server. Raises EmbeddingError."""
        chosen = self._chosen
        if chosen is not None and self.in_process:
            chosen.embed_query("ready")

    def release(self) -> None:
        if self._chosen is not None:
            self._chosen.release()

    def close(self) -> None:
        chosen, self._chosen, self._for = self._chosen, None, None
        self._reason = "this embedder was closed"
        if chosen is not None:
            chosen.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _needed(self) -> HeldEmbedder:
        if self._for is None:
            self.look()
        chosen = self._chosen
        if chosen is None:
            raise NoEmbedding(self._reason)
        return chosen

    def _recorded(self) -> str:
        return (mirror_log.meta_get(self._database, mirror_log.MODEL) or b"").decode()
