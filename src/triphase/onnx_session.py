"""ONNX graphs ready to run on numpy arrays."""

from __future__ import annotations

from typing import Any

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"  # of ONNX Runtime


def open_session(graph: bytes, threads: int, provider: str = CPU) -> Any:
    """An ONNX graph ready to run; any number of threads may use it."""
    import onnxruntime  # slow to import

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # a neighbour may hold the core
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(graph, options, providers=list(dict.fromkeys([provider, CPU])))
    except Exception as error:  # the runtime's own errors have no common class
        raise ValueError(f"ONNX Runtime cannot load a graph: {error}") from error


def offers_cuda() -> bool:
    """Whether the runtime that is installed was built for CUDA."""
    import onnxruntime

    return CUDA in onnxruntime.get_available_providers()
