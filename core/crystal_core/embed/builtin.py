"""The embedder that ships with Crystal: all-MiniLM-L6-v2 in 8 bits, on the CPU, without network or key.

Rules:

- Importing this module, or making a `BuiltinEmbedder`, loads nothing. The first call loads the libraries and
  the model (about 150 ms); `release` gives the memory back while nobody needs it.
- Each window runs alone, without padding, on one thread; several threads run several windows. So a text's
  vector doesn't depend on the texts beside it or on the number of threads, no time goes into padding, and
  the rate per processor is that of the largest batches.
- What is to be stored is only made by model files whose hashes were checked. A query takes the quick check:
  23 MB of hashing would be felt in a cold `crystal search`, and a query's vector is not kept.
"""

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from crystal_core.embed.manifest import GRAPH_FILE, TOKENIZER_FILE, Manifest, read_manifest
from crystal_core.embed.port import EmbedderClosed, EmbeddingError, ModelDamaged
from crystal_core.embed.session import Session, open_session
from crystal_core.embed.windows import PART_TOKENS_MAX, WINDOW_OVERLAP_TOKENS, WINDOW_TOKENS_MAX, window_spans

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

THREADS_DEFAULT_MAX = 4
"""Threads that an embedder takes of its own accord, on a machine with as many processors."""

QUERY_CHARACTERS_MAX = 16 * 1024
"""What of a query is read at all. Its first window, 254 tokens, is usually over after 1,000."""


class _Model:
    """The loaded model: immutable, so threads that still use it are safe from a `release` meanwhile."""

    def __init__(self, session: Session, tokenizer: "Tokenizer", start: int, end: int) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._start = start
        self._end = end

    def tokens(self, text: str) -> list[int]:
        """The text's tokens, without the two that mark its start and end."""
        return self._tokenizer.encode(_encodable(text), add_special_tokens=False).ids

    def vector(self, tokens: Sequence[int]) -> "NDArray[np.float32]":
        """Run one window. Raises `EmbeddingError` for a result that is not a vector."""
        import numpy as np

        ids = np.array([[self._start, *tokens, self._end]], np.int32)
        vector: NDArray[np.float32] = self._session.run(None, {"ids": ids})[0][0]
        if not np.isfinite(vector).all():
            raise ModelDamaged("the embedding model gives numbers that are not finite")
        return vector

    def stored(self, tokens: Sequence[int]) -> bytes:
        return self.vector(tokens).astype("<f2").tobytes()


class BuiltinEmbedder:
    """The built-in implementation of `crystal_core.embed.port.Embedder`.

    `threads` is how many windows are embedded at once; by default one for each processor that the process
    may use, at most `THREADS_DEFAULT_MAX`. `directory` holds the model's files; by default the shipped ones.
    """

    def __init__(self, *, threads: int | None = None, directory: Path | None = None) -> None:
        """Raises ValueError for less than one thread."""
        if threads is not None and threads < 1:
            raise ValueError(f"an embedder needs at least one thread, not {threads}")
        self._threads = threads or min(THREADS_DEFAULT_MAX, _processors())
        self._directory = directory or Path(__file__).resolve().parent / "model"
        self._lock = threading.Lock()
        self._manifest: Manifest | None = None
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
        self.check()
        model = self._load()
        windows = [_windows(model.tokens(text)) for text in texts]
        vectors = iter(self._run(model, [window for of_text in windows for window in of_text]))
        return [[next(vectors) for _ in of_text] for of_text in windows]

    def embed_query(self, text: str) -> "NDArray[np.float32]":
        """See the port. Raises `ModelDamaged`, `EmbedderClosed` or `EmbeddingError`."""
        model = self._load()
        return model.vector(model.tokens(text[:QUERY_CHARACTERS_MAX])[:WINDOW_TOKENS_MAX])

    def check(self, *, again: bool = False) -> None:
        """Hash the model's files and compare; once in the life of the embedder, unless `again`.

        Raises `ModelDamaged`.
        """
        manifest = self._read_manifest()
        if again or not self._checked:
            manifest.check(self._directory)
            self._checked = True

    def release(self) -> None:
        """Give the model's memory back to the system. The next call loads it again."""
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

    def _run(self, model: _Model, windows: Sequence[Sequence[int]]) -> list[bytes]:
        if self._threads == 1 or len(windows) == 1:
            return [model.stored(window) for window in windows]
        from concurrent.futures import ThreadPoolExecutor

        workers = min(self._threads, len(windows))
        pool = ThreadPoolExecutor(workers, thread_name_prefix="crystal-embed")
        try:
            return list(pool.map(model.stored, windows))
        finally:
            pool.shutdown(cancel_futures=True)

    def _read_manifest(self) -> Manifest:
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
                self._read_manifest().check_quickly(self._directory)
                self._model = _load_model(self._directory)
            return self._model


def _windows(tokens: Sequence[int]) -> list[Sequence[int]]:
    return [tokens[first:last] for first, last in window_spans(len(tokens))]


def _encodable(text: str) -> str:
    """The text without lone surrogates, which command lines can hold and the tokenizer refuses."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def _load_model(directory: Path) -> _Model:
    session = open_session(directory / GRAPH_FILE)
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        hint = "Crystal needs a platform that tokenizers supports; until then search works by keyword"
        raise EmbeddingError(f"tokenizers cannot be loaded: {error}", hint=hint) from error
    tokenizer = Tokenizer.from_file(str(directory / TOKENIZER_FILE))
    # The published file asks for cutting and padding to 128 tokens.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    start, end = tokenizer.encode("").ids
    return _Model(session, tokenizer, start, end)


def _processors() -> int:
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _return_freed_memory() -> None:
    """Have glibc hand freed pages back: it keeps about 13 MB of a released model otherwise."""
    if sys.platform == "linux":
        import ctypes

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
