"""The judge of a search: a cross-encoder of sentence-transformers, in this process. An extra, because it needs PyTorch.

The model has to be on this machine: a folder, or a name in the library's own cache. Nothing is fetched, and nothing is sent.
`prepare` loads it, in seconds; a search asks only a judge that is loaded. A model that could not be loaded is not tried again.
"""

import importlib
import math
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crystal_core.search.judge import JudgeError, JudgeUnavailable
from crystal_node.base.settings import Settings

OFF = "off"
TOKENS_MAX = 512
"""Of query and passage together; the rest of a passage is not read."""
_FIX = "Install the extra: `pip install 'memory-crystal[sentence-transformers]'`, or `crystal config set search_judge off`."
_FETCH = "Give the model's folder (`crystal config set search_judge_model /path`), or fetch it once with sentence-transformers."


class CrossEncoderJudge:
    """See the module and the port, `crystal_core.search.judge`. ``place``: the model's folder or name."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._loaded: Any = None
        self._problem: JudgeUnavailable | None = None
        try:
            self._place = str(Path(place).expanduser()) if place.startswith(("~", "/", ".")) else place
        except RuntimeError:
            who = Path(place).parts[0]
            self._problem = JudgeUnavailable(
                f"the home folder of {who} is not known on this machine", hint=_FETCH
            )

    @property
    def identity(self) -> str:
        """Like `cross-encoder/ms-marco-MiniLM-L6-v2`; of a folder, only its last part is named."""
        name = Path(self._place).name.encode("ascii", "replace").decode().replace(" ", "-")
        return f"cross-encoder/{name}"

    @property
    def ready(self) -> bool:
        return self._loaded is not None

    def prepare(self) -> None:
        """Load the library and the model. Raises JudgeUnavailable, each time for the same reason."""
        with self._lock:
            self._load()

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """See the port. Raises JudgeError."""
        if not passages:
            return []
        with self._lock:
            model = self._load()
            try:
                raw: list[float] = model.predict(
                    [(_encodable(query), _encodable(passage)) for passage in passages],
                    batch_size=len(passages),
                    show_progress_bar=False,
                    activation_fn=_unchanged,
                ).tolist()
            except (RuntimeError, ValueError, TypeError, IndexError, MemoryError) as error:
                raise JudgeError(f"{self.identity} could not judge: {type(error).__name__}") from error
        if not all(math.isfinite(value) for value in raw):
            raise JudgeError(f"{self.identity} gives numbers that are not finite")
        return [_probability(value) for value in raw]

    def release(self) -> None:
        """Free the model's memory; `prepare` loads it again."""
        with self._lock:
            self._loaded = None

    def _load(self) -> Any:
        if self._problem is not None:
            raise self._problem
        if self._loaded is None:
            try:
                self._loaded = self._opened()
            except JudgeUnavailable as problem:
                self._problem = problem
                raise
        return self._loaded

    def _opened(self) -> Any:
        try:
            library: Any = importlib.import_module("sentence_transformers")
        except ImportError as error:
            raise JudgeUnavailable("the package sentence-transformers is not installed", hint=_FIX) from error
        try:
            model = library.CrossEncoder(
                self._place,
                device="cpu",
                max_length=TOKENS_MAX,
                trust_remote_code=False,
                local_files_only=True,
            )
        except Exception as error:
            what = f"{self.identity} is not whole on this machine: {type(error).__name__}"
            raise JudgeUnavailable(what, hint=_FETCH) from error
        if model.num_labels != 1:
            raise JudgeUnavailable(
                f"{self.identity} gives {model.num_labels} numbers for a passage, a judge gives one",
                hint=_FETCH,
            )
        return model


def judge_for(settings: Settings) -> tuple[CrossEncoderJudge | None, str]:
    """The judge that the settings name, not loaded; else None and why: "" where none is wanted."""
    chosen = settings.searching
    if chosen.judge == OFF:
        return None, ""
    if find_spec("sentence_transformers") is None:
        return None, f"the package sentence-transformers is not installed. {_FIX}"
    return CrossEncoderJudge(chosen.judge_model), ""


def _unchanged(logits: Any) -> Any:
    """Some published models end in a sigmoid, some in nothing: each gives its logits here."""
    return logits


def _probability(logit: float) -> float:
    return 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))


def _encodable(text: str) -> str:
    """The tokenizer refuses half a surrogate pair."""
    return text.encode("utf-8", "replace").decode()
