"""The built-in embedder: all-MiniLM-L6-v2, quantised to 8 bits, on the CPU, without network or key.

Rules:

- Importing this module or creating a `BuiltinEmbedder` loads nothing. The first call loads the libraries and the model
  (about 150 ms); `release` frees the memory. Imports of NumPy and onnxruntime are therefore inside functions.
- A batch holds windows of equal length, without padding, and runs on one thread; several threads run several batches.
  The model computes each window to the bit as if it were alone, so a text's vector does not depend on the texts beside it
  or on the number of threads.
- A text that fits the model is one window. A longer one is cut into much shorter windows than would fit, because a window
  has one vector for all that it says, and two sentences among 250 tokens of something else are hardly found; on texts that
  fit, shorter windows find less (docs/decisions/0009-built-in-embedder.md). All windows of a text have the same length, since
  a short last window would say little, and overlap by `WINDOW_OVERLAP_TOKENS` or a few more.
- Vectors, stored or of a query, are made only by model files whose hashes were checked, at each load. The weights are hashed
  in a thread while the libraries are loaded, when the processor is mostly idle.
"""

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from crystal_core.embed.manifest import GRAPH_FILE, TOKENIZER_FILE, ModelManifest, read_manifest
from crystal_core.embed.port import EmbedderClosed, ModelDamaged
from crystal_core.embed.session import Session, open_session
from crystal_core.embed.wordpiece import UnreadableTokenizer, WordPiece

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WINDOW_TOKENS_MAX = 254
"""Longest text that is one window: the 256 tokens of all-MiniLM-L6-v2, less the two that mark start and end."""

PART_TOKENS_MAX = 64
"""Tokens in each window of a longer text."""

WINDOW_OVERLAP_TOKENS = 16
"""Tokens shared by neighbouring windows, at least."""

WINDOWS_PER_TEXT_MAX = 1365
"""Windows of one text: enough for 64 KiB of the densest text, one token per byte. The rest of a longer text is found by
keyword only."""

_STEP_TOKENS = PART_TOKENS_MAX - WINDOW_OVERLAP_TOKENS

THREADS_DEFAULT_MAX = 4
"""Default number of threads, on a machine with as many processors."""

QUERY_CHARACTERS_MAX = 16 * 1024
"""Characters of a query that are read. Its first window, 254 tokens, usually ends within 1,000."""

BATCH_TOKENS_MAX = 128
"""Tokens of one batch. Batching makes short windows up to half faster; from 64 tokens on it gains nothing."""

TEXTS_TOGETHER = 64
"""Texts whose windows are sorted into batches together; the next ones are prepared while these run."""


def window_spans(tokens: int) -> list[tuple[int, int]]:
    """Return start and end (exclusive) of each window of a text with `tokens` tokens, in order.

    An empty text has one empty window. Raises ValueError for a negative number.
    """
    if tokens < 0:
        raise ValueError(f"a text cannot have {tokens} tokens")
    if tokens <= WINDOW_TOKENS_MAX:
        return [(0, tokens)]
    tokens = min(tokens, WINDOWS_PER_TEXT_MAX * _STEP_TOKENS + WINDOW_OVERLAP_TOKENS)
    count = _divide_up(tokens - WINDOW_OVERLAP_TOKENS, _STEP_TOKENS)
    length = _divide_up(tokens + (count - 1) * WINDOW_OVERLAP_TOKENS, count)
    starts = (index * (tokens - length) // (count - 1) for index in range(count))
    return [(start, start + length) for start in starts]


def _divide_up(value: int, by: int) -> int:
    return -(-value // by)


class _Window(Struct, frozen=True):
    """A window to embed: index of its text, its index within the text, and its tokens."""

    text: int
    index: int
    tokens: Sequence[int]


class _Model:
    """The loaded model: immutable, so a `release` does not disturb threads that still use it."""

    def __init__(self, session: Session, tokenizer: WordPiece) -> None:
        self._session = session
        self.tokens = tokenizer.encode
        self._start, self._end = tokenizer.start, tokenizer.end

    def vectors(self, windows: Sequence[Sequence[int]]) -> "NDArray[np.float32]":
        """Embed windows of one length together, a row each. Raises `ModelDamaged` for values that are not finite."""
        import numpy as np

        ids = np.array([[self._start, *tokens, self._end] for tokens in windows], np.int32)
        vectors: NDArray[np.float32] = self._session.run(None, {"ids": ids})[0]
        if not np.isfinite(vectors).all():
            raise ModelDamaged("the embedding model gives numbers that are not finite")
        return vectors

    def stored(self, batch: Sequence[_Window]) -> list[bytes]:
        """Return the stored form of each window's vector."""
        halves = self.vectors([window.tokens for window in batch]).astype("<f2")
        return [row.tobytes() for row in halves]


class BuiltinEmbedder:
    """The built-in implementation of `crystal_core.embed.port.Embedder`.

    `threads`: batches embedded at once; by default one per processor that the process may use, at most
    `THREADS_DEFAULT_MAX`. `directory` holds the model's files; by default the shipped ones.
    """

    def __init__(self, *, threads: int | None = None, directory: Path | None = None) -> None:
        """Raises ValueError for less than one thread."""
        if threads is not None and threads < 1:
            raise ValueError(f"an embedder needs at least one thread, not {threads}")
        self._threads = threads or min(THREADS_DEFAULT_MAX, _processors())
        self._directory = directory or Path(__file__).resolve().parent / "model"
        self._lock = threading.Lock()
        self._manifest: ModelManifest | None = None
        self._model: _Model | None = None
        self._checked = False
        self._closed = False

    @property
    def identity(self) -> str:
        """Like `all-MiniLM-L6-v2/int8/0123456789ab/384/254-64-16`: model, quantisation, revision, dimensions, windows.

        Raises `ModelDamaged`.
        """
        manifest = self._read_manifest()
        windows = f"{WINDOW_TOKENS_MAX}-{PART_TOKENS_MAX}-{WINDOW_OVERLAP_TOKENS}"
        parts = (manifest.model, manifest.quantisation, manifest.revision, str(manifest.dimensions), windows)
        return "/".join(parts)

    @property
    def dimensions(self) -> int:
        """384. Raises `ModelDamaged`."""
        return self._read_manifest().dimensions

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._model is not None

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        """See the port. Raises `ModelDamaged`, `EmbedderClosed` or `EmbeddingError`."""
        if not texts:
            return []
        model = self._load()
        found: list[dict[int, bytes]] = [{} for _ in texts]
        for batch, vectors in self._run(model, texts):
            for window, vector in zip(batch, vectors, strict=True):
                found[window.text][window.index] = vector
        return [[of_text[index] for index in range(len(of_text))] for of_text in found]

    def embed_query(self, text: str) -> "NDArray[np.float32]":
        """See the port. Raises `ModelDamaged`, `EmbedderClosed` or `EmbeddingError`."""
        model = self._load()
        tokens = model.tokens(text[:QUERY_CHARACTERS_MAX])[:WINDOW_TOKENS_MAX]
        vector: NDArray[np.float32] = model.vectors([tokens])[0]
        return vector

    def check(self, *, again: bool = False) -> None:
        """Verify the hashes of the model's files; once in the embedder's life, unless `again`.

        Raises `ModelDamaged`.
        """
        manifest = self._read_manifest()
        if again or not self._checked:
            manifest.check(self._directory)
            self._checked = True

    def release(self) -> None:
        """Return the model's memory to the system. The next call loads it again."""
        with self._lock:
            if self._model is None:
                return
            self._model = None
        _return_freed_memory()

    def close(self) -> None:
        """Release for good: later calls raise `EmbedderClosed`. Closing twice is fine."""
        with self._lock:
            self._closed = True
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, model: _Model, texts: Sequence[str]) -> list[tuple[list[_Window], list[bytes]]]:
        from concurrent.futures import Future, ThreadPoolExecutor

        # The longest first, so that no thread is still busy with a long one when the others are done.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]), reverse=True)
        pending: list[tuple[list[_Window], Future[list[bytes]]]] = []
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="crystal-embed")
        try:
            for first in range(0, len(order), TEXTS_TOGETHER):
                together = order[first : first + TEXTS_TOGETHER]
                windows = [
                    window for index in together for window in _windows(index, model.tokens(texts[index]))
                ]
                pending.extend((batch, pool.submit(model.stored, batch)) for batch in _batches(windows))
            return [(batch, future.result()) for batch, future in pending]
        finally:
            pool.shutdown(cancel_futures=True)

    def _read_manifest(self) -> ModelManifest:
        if self._manifest is None:
            self._manifest = read_manifest(self._directory)
        return self._manifest

    def _load(self) -> _Model:
        model = self._model
        if model is not None:
            return model
        with self._lock:
            if self._closed:
                raise EmbedderClosed("this embedder was closed")
            if self._model is None:
                self._model = self._load_checked()
            return self._model

    def _load_checked(self) -> _Model:
        """Load the model; raises `ModelDamaged` before anything is computed with it if a file is not the shipped one."""
        from concurrent.futures import ThreadPoolExecutor

        manifest = self._read_manifest()
        manifest.check_quickly(self._directory)
        with ThreadPoolExecutor(1, thread_name_prefix="crystal-check") as pool:
            checked = pool.submit(manifest.check, self._directory)
            try:
                model = _load_model(self._directory)
            finally:
                checked.result()
        self._checked = True
        return model


def _windows(text: int, tokens: Sequence[int]) -> Iterator[_Window]:
    for index, (first, last) in enumerate(window_spans(len(tokens))):
        yield _Window(text, index, tokens[first:last])


def _batches(windows: Iterable[_Window]) -> Iterator[list[_Window]]:
    """Group windows of one length into batches, the longest first."""
    ordered = sorted(windows, key=_length, reverse=True)
    for length, group in groupby(ordered, key=_length):
        same = list(group)
        size = max(1, BATCH_TOKENS_MAX // (length + 2))
        yield from (same[first : first + size] for first in range(0, len(same), size))


def _length(window: _Window) -> int:
    return len(window.tokens)


def _load_model(directory: Path) -> _Model:
    session = open_session(directory / GRAPH_FILE)
    try:
        return _Model(session, WordPiece.read(directory / TOKENIZER_FILE))
    except (OSError, UnreadableTokenizer) as error:
        raise ModelDamaged(f"the embedding model's {TOKENIZER_FILE} is damaged: {error}") from error


def _processors() -> int:
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _return_freed_memory() -> None:
    """Make glibc return freed pages: it keeps about 13 MB of a released model otherwise."""
    if sys.platform == "linux":
        import ctypes

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
