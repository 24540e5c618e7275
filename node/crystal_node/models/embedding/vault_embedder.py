"""For whoever searches: embeds queries with the model of the memory that is open, whichever that is at the moment.

A memory changes its model under a process that goes on (`crystal embed migrate` on the Core, a snapshot that came in), and a
person changes settings. So the model that is recorded is looked at for each query, and the embedder is chosen anew when it, or
what the settings say of embedding, is another. Where there is none, ``embed_query`` raises NoEmbedding, whose text names what
mends it; a search goes on by keyword then and shows it.

``identity``, ``dimensions``, ``reason`` and ``look`` read the database and belong to its thread; the rest may be called from
others meanwhile.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from crystal_core.database import Database
from crystal_core.embed.port import AnotherModel, EmbeddingError, NoEmbedding
from crystal_core.state import mirror_log
from crystal_node.models.embedding.embedder import HeldEmbedder, compare_with
from crystal_node.models.embedding.selection import query_embedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from crystal_node.base.settings import Settings


class VaultEmbedder:
    """See the module. Close it, or use it as a context; the database stays open."""

    def __init__(self, settings: "Settings", database: Database) -> None:
        self._settings = settings
        self._database = database
        self._chosen: HeldEmbedder | None = None
        self._identity = ""
        self._reason = "the memory was not looked at yet"
        self._for: tuple[object, ...] | None = None

    @property
    def identity(self) -> str:
        """That of the memory's vectors; "" if it has none."""
        self.look()
        return self._identity

    @property
    def dimensions(self) -> int:
        """Of the memory's vectors."""
        return int(self._database.value("SELECT dimensions FROM index_state"))

    @property
    def reason(self) -> str:
        """Why queries are not embedded; "" if they are, as far as it is known without asking anybody."""
        self.look()
        return self._reason

    @property
    def loaded(self) -> bool:
        return self._chosen is not None and self._chosen.loaded

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
                self._for = (
                    None  # compared with another text next time: all may have been made anew meanwhile
                )
            raise NoEmbedding(f"{error}. {error.hint}".rstrip(".")) from error

    def look(self) -> None:
        """Reads which model the memory has by now, and what the settings say, and chooses anew where that has changed."""
        from crystal_node.base.settings import with_current_options

        self._settings = with_current_options(self._settings)
        self._identity = self._recorded()
        wanted = (self._identity, self._settings.embedding)
        if wanted != self._for:
            self.close()
            self._chosen, self._reason = query_embedder(self._settings, self._identity)
            compare_with(self._chosen, self._database)
            self._for = wanted

    def prepare(self) -> None:
        """Loads a model that is on this machine and takes a while to load. Asks no server. Raises EmbeddingError."""
        chosen = self._chosen
        if chosen is not None and getattr(chosen, "in_process", True):
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
