"""Deep searches on this device: which model is asked, for how long, and what becomes of its answer.

    wanted? ──no──► fast                          a model? ──none──► fast, and why
       └─yes─► a model? ──► cache ──► engine (``crystal_core.deep``) ──► hits in their new order

Whose model (``Deep._llm``), since candidates' texts go to it:

    --provider NAME, or llm_provider set by name    that one, wherever it is
    auto                                            MLX on :8080, then Ollama, on this machine alone
    none                                            nobody

Nothing that a model does or fails to do is an error of the search; ``explain`` tells all of it, and a search for which deep was
demanded says in its note why it was not.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from crystal_crypto.errors import CrystalError
from crystal_node.base.settings import Settings
from crystal_node.models.llm.addresses import MLX_URL, listens_here
from crystal_node.search.finding.deep_outcome import Deepened, Fallen, Fast, demanded, fallen
from crystal_node.search.finding.documents import Depth, SearchRequest

if TYPE_CHECKING:
    from crystal_core.llm.port import Llm

AUTO = "auto"
NONE = "none"
NOBODY_SECONDS = 15.0
"""After no model was found, none is looked for again for so long."""

T = TypeVar("T")


class Deep:
    """Kept by a ``Finder`` from one search to the next. May be asked by several threads."""

    def __init__(self, settings: Settings, *, mlx_url: str = MLX_URL) -> None:
        self._settings = settings
        self._mlx_url = mlx_url
        self._nobody_until = 0.0

    def wanted(self, request: SearchRequest) -> bool:
        """Whether a model is to help."""
        if request.depth is Depth.FAST or request.words_only:
            return False
        return demanded(request) or self._settings.searching.depth != Depth.FAST

    def search(self, request: SearchRequest, fast: Fast) -> Deepened | Fallen:
        """Takes as long as the settings let a model take. Raises what ``fast`` raises."""
        try:
            llm = _apart(lambda: self._llm(request.provider))
        except CrystalError as error:
            return fallen(request, str(error))
        if llm is None:
            return fallen(
                request, "no language model answers on this machine; one elsewhere is asked only by name"
            )
        # Lazy: it loads an event loop and a web client, and most searches on most machines have no model.
        from crystal_node.search.finding.deep_run import deepened

        return _apart(lambda: deepened(llm, self._settings, request, fast))

    def _llm(self, provider: str) -> "Llm | None":
        """Raises LlmError, LocalStorage."""
        name = provider or self._settings.dreams.provider
        if name == NONE:
            return None
        if name != AUTO:
            from crystal_node.models.llm.discovery import find_llm

            return find_llm(self._settings, name, mlx_url=self._mlx_url)
        if time.monotonic() < self._nobody_until:
            return None
        found: Llm | None = None
        if any(listens_here(place) for place in (self._mlx_url, self._settings.dreams.ollama_host)):
            from crystal_node.models.llm.discovery import find_llm_here

            found = find_llm_here(self._settings, mlx_url=self._mlx_url)
        if found is None:
            self._nobody_until = time.monotonic() + NOBODY_SECONDS
        return found


def _apart(work: Callable[[], T]) -> T:
    """The work, in a thread where no event loop runs: this one as a rule."""
    asyncio = sys.modules.get("asyncio")  # without it there is no loop
    if asyncio is None or asyncio._get_running_loop() is None:  # noqa: SLF001  None in place of an exception
        return work()
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            failed.append(error)

    thread = threading.Thread(target=run, name="crystal-deep")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
