"""What all providers but the built-in one share: windows, batches, checks of the answers, comparison with the vault.

::

    texts ─ windows ─ those not made lately ─ batches ─► the model ─► rows ─ finite? as many numbers as they must have?
                                                                        └─► normalised ─► float16, or float32 for a query

Before the first request, and again each hour, a text is embedded whose vector the vault has. If the new vector differs by more
than ``SAME_COSINE`` allows, or has another number of dimensions, ``AnotherModel`` is raised before vectors could be mixed.

Recent vectors are cached, so that a batch that has to be repeated is not paid for twice.
"""

import hashlib
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from crystal_core.embed.identities import DIMENSIONS_MAX, ModelIdentity
from crystal_core.embed.port import AnotherModel, EmbedderClosed, EmbedderRefused
from crystal_node.models.embedding.embedder import Sample
from crystal_node.models.embedding.http import EmbedHttp, InputTooLong, Pause
from crystal_node.models.embedding.windows import WindowScheme, first_window, windows_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SAME_COSINE = 0.999
"""Least cosine of two vectors of one text by one model. Other hardware gives 0.9999, another quantisation much less."""
VERIFY_AGAIN_SECONDS = 3600.0
MADE_LATELY_BYTES_MAX = 16 * 1024 * 1024
INPUT_CHARS_MIN = 64
"""A text this short is refused for another reason than its length."""
QUERY_SECONDS_MAX = 10.0
BATCH_SECONDS_MAX = 90.0
_PROBE = "The quick brown fox jumps over the lazy dog."


class RemoteEmbedder(ABC):
    """A provider's model. ``patience``: seconds that a call may wait when the provider asks for it.

    Subclasses implement ``_ask``.
    """

    in_process = False
    """Whether the model runs in this process."""
    batch_texts = 64
    batch_bytes = 128 * 1024

    def __init__(
        self,
        provider: str,
        model: str,
        dimensions: int,
        scheme: WindowScheme,
        *,
        before: tuple[str, str] = ("", ""),
        patience: float = 0.0,
    ) -> None:
        """``dimensions`` 0: the model is asked when they are needed. ``before``: prefixes of a document and of a query."""
        self._provider = provider
        self._model = model
        self._dimensions = dimensions
        self._scheme = scheme
        self._before = before
        self._patience = patience
        self._lock = threading.RLock()
        self._lately: OrderedDict[bytes, bytes] = OrderedDict()
        self._sample: Sample | None = None
        self._verify_at = 0.0
        self._closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r})"

    @property
    def identity(self) -> str:
        """See ``crystal_core.embed.identities``. Asks an unknown model for its dimensions. Raises EmbeddingError."""
        return str(ModelIdentity(self._provider, self._model, self.dimensions, str(self._scheme)))

    @property
    def dimensions(self) -> int:
        """Numbers in a vector. Raises EmbeddingError, as ``identity``."""
        if not self._dimensions:
            rows = self._asked([_PROBE], query=False, seconds=QUERY_SECONDS_MAX)
            self._dimensions = int(rows.shape[1])
        return self._dimensions

    @property
    def known(self) -> bool:
        """Whether ``identity`` is known without a request."""
        return bool(self._dimensions)

    @property
    def loaded(self) -> bool:
        """Whether it holds memory that ``release`` gives back."""
        return bool(self._lately)

    def expect(self, sample: Sample | None) -> None:
        """Sets the sample that the model is compared with before its next answer; see the module."""
        self._sample = sample
        self._verify_at = 0.0

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        """See the port. Raises EmbeddingError."""
        cut = [windows_of(text, self._scheme) for text in texts]
        made: dict[bytes, bytes] = {}
        missing: dict[bytes, str] = {}
        with self._lock:
            for window in (window for windows in cut for window in windows):
                key = _key(window)
                if (known := self._lately.get(key)) is not None:
                    made[key] = known
                else:
                    missing[key] = window
            for keys in self._batches(missing):
                rows = self._checked([missing[key] for key in keys])
                new = {key: row.astype("<f2").tobytes() for key, row in zip(keys, rows, strict=True)}
                made.update(new)
                self._note(new)
        return [[made[_key(window)] for window in windows] for windows in cut]

    def embed_query(self, text: str) -> "NDArray[np.float32]":
        """See the port. Raises EmbeddingError."""
        query = first_window(text, self._scheme)
        self._verify(seconds=QUERY_SECONDS_MAX)
        row: NDArray[np.float32] = self._asked([query], query=True, seconds=QUERY_SECONDS_MAX)[0]
        return row

    def release(self) -> None:
        """Drops the cached vectors."""
        with self._lock:
            self._lately.clear()

    def close(self) -> None:
        self._closed = True
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _ask(self, inputs: Sequence[str], *, query: bool, seconds: float) -> list[list[float]]:
        """One request: a row for each input, in order. Raises EmbeddingError."""

    def _batches(self, missing: dict[bytes, str]) -> list[list[bytes]]:
        batches: list[list[bytes]] = []
        size = self.batch_bytes
        for key, window in missing.items():
            length = len(window.encode("utf-8", "replace"))
            if size + length > self.batch_bytes or len(batches[-1]) >= self.batch_texts:
                batches.append([])
                size = 0
            batches[-1].append(key)
            size += length
        return batches

    def _checked(self, windows: Sequence[str]) -> "NDArray[np.float32]":
        """Vectors of documents, after the comparison with the vault."""
        self._verify(seconds=BATCH_SECONDS_MAX)
        return self._asked(windows, query=False, seconds=BATCH_SECONDS_MAX)

    def _verify(self, *, seconds: float) -> None:
        with self._lock:
            if self._sample is None or time.monotonic() < self._verify_at:
                return
            text, vector = self._sample
            import numpy as np

            kept = np.frombuffer(vector, "<f2").astype(np.float32)
            row = self._asked(windows_of(text, self._scheme)[:1], query=False, seconds=seconds)[0]
            cosine = (
                float(row @ kept) / max(float(np.linalg.norm(kept)), 1e-6) if len(row) == len(kept) else 0.0
            )
            if cosine < SAME_COSINE:
                raise AnotherModel(
                    f"what answers as {self._model} ({self._provider}) is another model than the one that made the vault's "
                    f"vectors: for one text they have a cosine of {cosine:.3f}"
                )
            self._verify_at = time.monotonic() + VERIFY_AGAIN_SECONDS

    def _asked(self, inputs: Sequence[str], *, query: bool, seconds: float) -> "NDArray[np.float32]":
        """Normalised rows. Inputs that are too long for the model are split or shortened."""
        if self._closed:
            raise EmbedderClosed("this embedder was closed")
        said = [self._before[query] + text for text in inputs]
        try:
            return self._rows(self._ask(said, query=query, seconds=seconds), len(inputs))
        except InputTooLong:
            import numpy as np

            if len(inputs) > 1:
                halves = (inputs[: len(inputs) // 2], inputs[len(inputs) // 2 :])
                return np.concatenate([self._asked(half, query=query, seconds=seconds) for half in halves])
            if len(inputs[0]) <= INPUT_CHARS_MIN:
                raise
            return self._asked([inputs[0][: len(inputs[0]) // 2]], query=query, seconds=seconds)

    def _rows(self, rows: list[list[float]], wanted: int) -> "NDArray[np.float32]":
        import numpy as np

        sizes = {len(row) for row in rows}
        if len(rows) != wanted or len(sizes) != 1:
            raise EmbedderRefused(
                f"{self._model} ({self._provider}) gives vectors that do not fit what was asked"
            )
        size = sizes.pop()
        if self._dimensions and size != self._dimensions:
            raise AnotherModel(
                f"{self._model} ({self._provider}) gives vectors of {size:,} numbers, not of {self._dimensions:,}"
            )
        if not 0 < size <= DIMENSIONS_MAX:
            raise EmbedderRefused(f"{self._model} ({self._provider}) gives vectors of {size:,} numbers")
        matrix = np.array(rows, np.float64)
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        if not np.isfinite(matrix).all() or not np.isfinite(lengths).all() or not (lengths > 0).all():
            raise EmbedderRefused(
                f"{self._model} ({self._provider}) gives vectors that are none: not finite, or of no length"
            )
        unit: NDArray[np.float32] = (matrix / lengths).astype(np.float32)
        return unit

    def _note(self, new: dict[bytes, bytes]) -> None:
        self._lately.update(new)
        while self._lately and len(self._lately) * (2 * self._dimensions + 100) > MADE_LATELY_BYTES_MAX:
            self._lately.popitem(last=False)


class HttpEmbedder(RemoteEmbedder):
    """A model behind a server at ``url``. Subclasses name the ``provider`` and the headers of its key."""

    provider: ClassVar[str]

    def __init__(
        self,
        url: str,
        model: str,
        dimensions: int,
        scheme: WindowScheme,
        *,
        key: str = "",
        before: tuple[str, str] = ("", ""),
        patience: float = 0.0,
        pause: Pause = time.sleep,
    ) -> None:
        """Raises EmbedderRefused: the key would be readable on the network."""
        super().__init__(self.provider, model, dimensions, scheme, before=before, patience=patience)
        self._http = EmbedHttp(url, secret=self._secret(key) if key else {}, pause=pause)

    def close(self) -> None:
        super().close()
        self._http.close()

    @staticmethod
    def _secret(key: str) -> dict[str, str]:
        """The headers that hold the key; none for a server without keys."""
        del key
        return {}


def _key(window: str) -> bytes:
    return hashlib.sha256(window.encode("utf-8", "replace")).digest()
