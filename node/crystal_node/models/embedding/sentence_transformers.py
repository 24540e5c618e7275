"""sentence-transformers: any model of that library, in this process. An extra, because it needs PyTorch.

The first call loads the library and the model, which is fetched from the hub unless its place is a folder.
"""

import importlib
from collections.abc import Sequence
from typing import Any

from crystal_core.embed.port import EmbedderClosed, EmbedderRefused, EmbedderUnavailable
from crystal_node.models.embedding.remote import RemoteEmbedder
from crystal_node.models.embedding.windows import WindowScheme

_FIX = "Install the extra: `pip install 'memory-crystal[sentence-transformers]'`."


class SentenceEmbedder(RemoteEmbedder):
    """One model. ``place``: its name or folder; ``model``: its name in the identity."""

    in_process = True
    batch_texts = 32

    def __init__(
        self, place: str, model: str, dimensions: int, scheme: WindowScheme, *, patience: float = 0.0
    ) -> None:
        super().__init__("sentence-transformers", model, dimensions, scheme, patience=patience)
        self._place = place
        self._loaded: Any = None

    @property
    def loaded(self) -> bool:
        return self._loaded is not None

    def release(self) -> None:
        """Frees the model's memory."""
        super().release()
        with self._lock:
            self._loaded = None

    def _ask(self, inputs: Sequence[str], *, query: bool, seconds: float) -> list[list[float]]:
        with self._lock:
            model = self._model_loaded()
            encode = model.encode_query if query else model.encode_document
            try:
                rows: list[list[float]] = encode(list(inputs), show_progress_bar=False).tolist()
            except (RuntimeError, ValueError, MemoryError) as error:
                what = f"sentence-transformers could not embed with {self._model}: {type(error).__name__}"
                raise EmbedderUnavailable(what) from error
            return rows

    def _model_loaded(self) -> Any:
        if self._closed:
            raise EmbedderClosed("this embedder was closed")
        if self._loaded is None:
            try:
                library: Any = importlib.import_module("sentence_transformers")
            except ImportError as error:
                raise EmbedderRefused(
                    "the package sentence-transformers is not installed", hint=_FIX
                ) from error
            try:
                self._loaded = library.SentenceTransformer(self._place, device="cpu", trust_remote_code=False)
            except (OSError, ValueError, RuntimeError, ImportError) as error:
                raise EmbedderUnavailable(
                    f"sentence-transformers cannot load {self._model}: {type(error).__name__}",
                    hint="Check the model's name, or that its folder is whole.",
                ) from error
        return self._loaded
