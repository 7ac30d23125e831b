"""Quantize an exported model to 8-bit integers, and measure the loss."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper
from torch import Tensor

from triphase.app.answer_graph import ANSWER, INPUT
from triphase.app.export_check import run_pixels
from triphase.app.export_samples import UNKNOWN_CLASS, Samples
from triphase.errors import Mismatch
from triphase.onnx_session import open_session

N_CALIBRATION = 128  # photos at most from which the ranges of activations are taken
BATCH = 8
LARGE = 1 << 18  # bytes of a float32 matrix that is worth storing in half of them
# What is computed in 8 bits, in the blocks of the network; the classifiers after them stay in float32.
OPERATORS = ["Conv", "Clip", "Relu", "Add", "Pad", "MaxPool", "GlobalAveragePool"]


@dataclass(frozen=True)
class QuantizationLoss:
    """An 8-bit graph compared with the float32 graph that it was made from."""

    calibrated: int  # photos from which ranges were taken
    measured: int  # photos on which all this was measured
    other_photos: bool  # none of the measured photos was used for calibration
    same_class: float  # share of the answers
    same_unknown: float  # share of the answers
    labelled: int  # photos whose class is known, on which accuracy was measured
    accuracy: float | None  # of the 8-bit graph
    float_accuracy: float | None
    bytes: int
    float_bytes: int
    speedup: float  # how many times as fast, here


def quantize(graph: ModelProto, samples: Samples) -> tuple[ModelProto, QuantizationLoss]:
    """The graph in 8 bits, calibrated on some of the samples and measured on the others."""
    n = len(samples.pixels)
    n_calibrated = min(N_CALIBRATION, max(1, n // 2))
    rows = torch.arange(n_calibrated) * n // n_calibrated
    others = torch.ones(n, dtype=torch.bool).index_fill(0, rows, False).nonzero().view(-1)
    try:
        small = _quantized(graph, samples.pixels[rows])
    except OSError:
        raise
    except Exception as error:  # the runtime's own errors have no common class
        raise Mismatch(f"8-bit integers cannot compute this model ({error}); export without --quantize.") from error
    measured = others if len(others) else rows
    return small, _loss(
        graph, small, samples.pixels[measured], samples.labels[measured], len(rows), len(others) > 0
    )


class _Reader:
    """Gives batches of pixels to the calibration."""

    def __init__(self, pixels: Tensor) -> None:
        self._batches: Iterator[Tensor] = iter(pixels.permute(0, 2, 3, 1).split(BATCH))

    def get_next(self) -> dict[str, Any] | None:
        batch = next(self._batches, None)
        return None if batch is None else {INPUT: batch.contiguous().numpy()}


def _quantized(graph: ModelProto, pixels: Tensor) -> ModelProto:
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(_Reader, quantization.CalibrationDataReader):  # type: ignore[misc]
        """With the base class that the runtime requires."""

    with TemporaryDirectory() as scratch:
        whole, prepared, small = (Path(scratch) / f"{name}.onnx" for name in ("whole", "prepared", "small"))
        whole.write_bytes(graph.SerializeToString())  # given the graph itself, the runtime would change it
        quant_pre_process(whole, prepared, skip_symbolic_shape=True)
        names = [node.name for node in onnx.load(prepared).graph.node]
        quantization.quantize_static(
            prepared,
            small,
            Reader(pixels),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=OPERATORS,
            nodes_to_exclude=[name for name in names if name.startswith(ANSWER)],
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            extra_options={"CalibMovingAverage": True},  # of batches, so that one outlier does not widen a range
        )
        result = onnx.load(small)
    _drop_unused_operator_sets_(result)
    _store_in_half_(result)
    return result


def _drop_unused_operator_sets_(graph: ModelProto) -> None:
    """Keep the sets of operators that occur: the runtime lists all that it has, which others may not know."""
    used = {node.domain for node in graph.graph.node}
    kept = [entry for entry in graph.opset_import if entry.domain in used]
    del graph.opset_import[:]
    graph.opset_import.extend(kept)


def _store_in_half_(graph: ModelProto) -> None:
    """Store the large matrices of the classifiers in float16; the runtime makes them float32 when it loads them."""
    for tensor in list(graph.graph.initializer):
        if tensor.name.startswith(ANSWER) and len(tensor.raw_data) >= LARGE:
            with np.errstate(over="ignore"):
                half = numpy_helper.to_array(tensor).astype(np.float16)
            if np.isfinite(half).all():
                stored, name = f"{tensor.name}/half", tensor.name
                graph.graph.initializer.remove(tensor)
                graph.graph.initializer.append(numpy_helper.from_array(half, stored))
                cast = helper.make_node("Cast", [stored], [name], name=f"{name}/cast", to=TensorProto.FLOAT)
                graph.graph.node.insert(0, cast)


def _loss(
    graph: ModelProto, small: ModelProto, pixels: Tensor, y: Tensor, calibrated: int, other_photos: bool
) -> QuantizationLoss:
    contents = [model.SerializeToString() for model in (graph, small)]
    runs = [_Timed(content, pixels[:BATCH]) for content in contents]
    for part in pixels.split(BATCH):  # in turns, so that a busy machine slows down both
        for run in runs:
            run(part)
    (label, unknown), (small_label, small_unknown) = (run.answers() for run in runs)
    labelled = y != UNKNOWN_CLASS
    return QuantizationLoss(
        calibrated=calibrated,
        measured=len(pixels),
        other_photos=other_photos,
        same_class=_share(label == small_label),
        same_unknown=_share(unknown == small_unknown),
        labelled=int(labelled.sum()),
        accuracy=_share((small_label == y)[labelled]) if bool(labelled.any()) else None,
        float_accuracy=_share((label == y)[labelled]) if bool(labelled.any()) else None,
        bytes=len(contents[1]),
        float_bytes=len(contents[0]),
        speedup=runs[0].seconds / runs[1].seconds,
    )


class _Timed:
    """Runs a graph, counts the seconds, and keeps classes and unknown flags."""

    def __init__(self, content: bytes, warm_up: Tensor) -> None:
        self._run = run_pixels(open_session(content, torch.get_num_threads()))
        self._run(warm_up)
        self.seconds = 0.0
        self._answers: list[tuple[Tensor, Tensor]] = []

    def __call__(self, pixels: Tensor) -> None:
        started = time.perf_counter()
        _, label, unknown = self._run(pixels)
        self.seconds += time.perf_counter() - started
        self._answers.append((label, unknown))

    def answers(self) -> tuple[Tensor, Tensor]:
        labels, unknown = zip(*self._answers, strict=True)
        return torch.cat(labels), torch.cat(unknown)


def _share(which: Tensor) -> float:
    return float(which.double().mean())
