"""ONNX graphs ready to run on numpy arrays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"  # of ONNX Runtime

MAX_VALUES = 1 << 17  # in the rows that pass a graph together: larger feature maps leave the processor's cache


class Graph:
    """A graph from "x" to one output, as a function of arrays; any number of threads may call it.

    On the CPU each thread computes some rows on its own. ONNX Runtime would split every layer among threads, which
    wait for each other after each.
    """

    def __init__(self, graph: bytes, threads: int, provider: str = CPU) -> None:
        self._made_of = graph, threads, provider
        self._on_cpu, self._threads = provider == CPU, threads
        self._session = open_session(graph, 1 if self._on_cpu else threads, provider)

    def __reduce__(self) -> tuple[type[Graph], tuple[bytes, int, str]]:
        return Graph, self._made_of  # a session cannot be copied or pickled

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        """(n, ...) of x (n, ...)."""
        parts = self._parts(x) if self._on_cpu else [x]
        if self._threads == 1 or len(parts) == 1:
            made = [self._run(part) for part in parts]
        else:
            with ThreadPoolExecutor(min(self._threads, len(parts))) as pool:
                made = list(pool.map(self._run, parts))
        return made[0] if len(made) == 1 else np.concatenate(made)

    def _parts(self, x: NDArray[Any]) -> list[NDArray[Any]]:
        """The rows in parts that fit the cache; all but the last have the same number of rows, a power of two."""
        fit = max(1, MAX_VALUES // max(1, x[:1].size))
        rows = 1 << (fit.bit_length() - 1)
        return [x[start : start + rows] for start in range(0, max(1, len(x)), rows)]

    def _run(self, x: NDArray[Any]) -> NDArray[Any]:
        out: NDArray[Any] = self._session.run(None, {"x": np.ascontiguousarray(x)})[0]
        return out


def open_session(graph: bytes, threads: int, provider: str = CPU) -> Any:
    """An ONNX graph ready to run; any number of threads may use it."""
    import onnxruntime  # slow to import

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # other processes may need the core
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(graph, options, providers=list(dict.fromkeys([provider, CPU])))
    except Exception as error:  # the runtime's own errors have no common class
        raise ValueError(f"ONNX Runtime cannot load a graph: {error}") from error


def offers_cuda() -> bool:
    """Whether the runtime that is installed was built for CUDA."""
    import onnxruntime

    return CUDA in onnxruntime.get_available_providers()
