"""The onnxruntime session, configured for many small runs. The only module that uses onnxruntime.

Rules:

- onnxruntime ships no types and its errors have no common base class; this module hides both.
- From version 1.29 on, its official builds send telemetry to Microsoft, also on Linux and macOS: the import writes a
  device identifier and a queue of events under ~/.cache/Microsoft and sends an event before the call that disables it can
  be made. Only the environment prevents all of it. Libraries here do not modify the environment, so each composition root
  puts `PROCESS_ENVIRONMENT` into `os.environ` before anything else.
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
"""Environment variables to set before the first import of onnxruntime, NumPy or sentence-transformers.

The first and the last two disable telemetry, see above. The second keeps NumPy's import from starting a thread pool (half of
its time, 60 ms of a cold search), which Crystal's small products would not use.
"""

_LOG_ERRORS_ONLY = 3


class Session(Protocol):
    """The part of `onnxruntime.InferenceSession` in use. `run` may be called from several threads."""

    def run(
        self, output_names: Sequence[str] | None, input_feed: "Mapping[str, NDArray[np.int32]]"
    ) -> "Sequence[NDArray[np.float32]]":
        """Compute all outputs from the named inputs."""
        ...


def open_session(graph: Path, *, threads: int = 1) -> Session:
    """Load the graph in the file `graph`; each `run` uses `threads` threads.

    Raises `EmbeddingError` when onnxruntime is not there or cannot run the graph.
    """
    try:
        # By name, because the package has no types; lazy, because it is heavy.
        runtime: Any = importlib.import_module("onnxruntime")
        failures: Any = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    except ImportError as error:
        hint = "Crystal needs a platform that onnxruntime supports; until then search works by keyword"
        raise EmbeddingError(f"onnxruntime cannot be loaded: {error}", hint=hint) from error
    # Stops all but the first event if the environment was not set.
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    # The exported graph is already optimised; doing it again would cost time at each start.
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # The arena gives a third more speed for about 20 MB. Patterns only help inputs of constant length.
    options.enable_mem_pattern = False
    options.log_severity_level = _LOG_ERRORS_ONLY
    known = ("Fail", "InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NotImplemented", "RuntimeException")
    try:
        # The weights are in a separate file, which onnxruntime finds by the graph's path and maps.
        session = runtime.InferenceSession(str(graph.resolve()), options, providers=["CPUExecutionProvider"])
    except tuple(getattr(failures, name) for name in known) as error:
        hint = "Install a newer onnxruntime; until then search works by keyword"
        message = f"onnxruntime {runtime.__version__} cannot run {graph.name}: {error}"
        raise EmbeddingError(message, hint=hint) from error
    return cast("Session", session)
