"""Opens a graph with onnxruntime, set up for many small runs: the only place that knows onnxruntime.

Rules:

- onnxruntime ships no types and its errors have no common root; both end here.
- From version 1.29 on its official builds report to Microsoft, also on Linux and macOS: with its import a
  device identifier and a queue of events are written under ~/.cache/Microsoft, and an event is sent before
  its own call to stop that can be made. Only the environment stops all of it. Libraries don't touch the
  environment here, so each composition root puts `PROCESS_ENVIRONMENT` into `os.environ` before anything
  else; a device that keeps memories tells nobody that it does.
"""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from crystal_core.embed.port import EmbeddingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PROCESS_ENVIRONMENT: Mapping[str, str] = {
    "ORT_DISABLE_TELEMETRY": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
"""What a process sets before the first import of onnxruntime, NumPy or sentence-transformers.

The first is explained above, and the last two are for the same reason. The second spares NumPy's import the start of
a thread pool (half of its time, 60 ms of a cold search) that none of Crystal's small products would use.
"""

_LOG_ERRORS_ONLY = 3


class Session(Protocol):
    """What is used of `onnxruntime.InferenceSession`. `run` may be called from several threads."""

    def run(
        self, output_names: Sequence[str] | None, input_feed: "Mapping[str, NDArray[np.int32]]"
    ) -> "Sequence[NDArray[np.float32]]":
        """Compute all outputs from the inputs by name."""
        ...


def open_session(graph: Path, *, threads: int = 1) -> Session:
    """Load the graph in the file `graph`; each `run` takes `threads` threads.

    Raises `EmbeddingError` when onnxruntime is not there or cannot run the graph.
    """
    try:
        # By name, because to type checkers the package is a heap of unknowns.
        runtime: Any = importlib.import_module("onnxruntime")
        failures: Any = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    except ImportError as error:
        hint = "Crystal needs a platform that onnxruntime supports; until then search works by keyword"
        raise EmbeddingError(f"onnxruntime cannot be loaded: {error}", hint=hint) from error
    # Stops all but the first event where the environment was not set.
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    # The graph is written as it is to run; optimising it again would cost time at each start.
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # The arena gives a third more speed for about 20 MB. Patterns are for inputs of constant length.
    options.enable_mem_pattern = False
    options.log_severity_level = _LOG_ERRORS_ONLY
    known = ("Fail", "InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NotImplemented", "RuntimeException")
    try:
        # The weights stand in a file of their own, which onnxruntime finds by the graph's path and maps.
        session = runtime.InferenceSession(str(graph.resolve()), options, providers=["CPUExecutionProvider"])
    except tuple(getattr(failures, name) for name in known) as error:
        hint = "Install a newer onnxruntime; until then search works by keyword"
        message = f"onnxruntime {runtime.__version__} cannot run {graph.name}: {error}"
        raise EmbeddingError(message, hint=hint) from error
    return cast("Session", session)
