"""Frozen blocks of a network in their fastest form: as ONNX Runtime runs them, or folded in torch.

A block is exported once; its graph is kept with the model, so that answering needs no exporter. A graph that does
not compute what the block computes is not used.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from triphase.context import Context
from triphase.errors import TriphaseWarning
from triphase.models.folding import folded
from triphase.onnx_session import CPU, CUDA, Graph, offers_cuda

MIN_PARAMETERS = 100_000  # of a block; smaller ones run in torch, where a session would not pay
TOLERANCE = 1e-3  # largest difference to torch, relative to the standard deviation of the block's output
N_PROBES = 4  # images by which a graph is compared with its block
OPSET = 17
MAX_KEPT = 8  # graphs, and sessions: each lesson makes one of its csf
Kept = TypeVar("Kept")


class OnnxBlock(nn.Module):
    """A frozen block as ONNX Runtime runs it; any number of threads may call it."""

    graph: Tensor  # uint8
    source: Tensor  # uint8: the checksum of the block that the graph was made from

    def __init__(self, graph: Tensor, source: Tensor, threads: int, provider: str = CPU) -> None:
        super().__init__()
        self.register_buffer("graph", graph)
        self.register_buffer("source", source)
        self._run = Graph(graph.numpy().tobytes(), threads, provider)

    def _apply(self, fn: object, recurse: bool = True) -> OnnxBlock:
        return self  # the runtime has its own copy where it computes; the graph stays on the host

    def __deepcopy__(self, memo: object) -> OnnxBlock:
        return self  # nothing in it ever changes

    def forward(self, x: Tensor) -> Tensor:
        """The output of the block for float x with any number of rows."""
        return torch.from_numpy(self._run(x.detach().cpu().numpy())).to(x.device)


def engine_of(context: Context, block: nn.Module) -> str:
    """The engine that runs a frozen block where it is: "torch", or "onnxruntime" with its version."""
    large = sum(p.numel() for p in block.parameters()) >= MIN_PARAMETERS
    if context.engine == "torch" or (context.engine == "auto" and not large):
        return "torch"
    if provider_for(_device_of(block)) is None:
        return "torch"
    import onnxruntime

    return f"onnxruntime {onnxruntime.__version__}"


def provider_for(device: torch.device) -> str | None:
    """The provider of ONNX Runtime for a device; None if it has none."""
    if device.type == "cpu":
        return CPU
    return CUDA if device.type == "cuda" and offers_cuda() else None


def _device_of(block: nn.Module) -> torch.device:
    return next((tensor.device for tensor in block.state_dict().values()), torch.device("cpu"))


def frozen_form(block: nn.Module, x: Tensor, context: Context) -> nn.Module:
    """A frozen block in its fastest form, made once until it changes; x is what it will be given."""
    return context.prepared(block, lambda: _prepare(block, x, context))


def load_graph(saved: Mapping[str, Any]) -> OnnxBlock:
    """The block of a saved graph, with as many threads as torch has."""
    return OnnxBlock(saved["graph"], saved["source"], torch.get_num_threads())


def remember_graphs(state: Mapping[str, Any], context: Context) -> None:
    """Keep the graphs of a saved state, so that unchanged blocks need not be exported again."""
    for part in state.values():
        if isinstance(part, Mapping) and {"graph", "source"} <= part.keys():
            _keep(context.graphs, part["source"].numpy().tobytes(), part["graph"])


def _keep(kept: dict[bytes, Kept], key: bytes, value: Kept) -> None:
    """Add to what is kept; beyond MAX_KEPT entries the oldest is dropped."""
    kept[key] = value
    while len(kept) > MAX_KEPT:
        del kept[next(iter(kept))]


def _prepare(block: nn.Module, x: Tensor, context: Context) -> nn.Module:
    device = _device_of(block)
    if engine_of(context, block) == "torch":
        return folded(block)
    source = _checksum(block)
    try:
        if source not in context.graphs:
            _keep(context.graphs, source, _checked_graph(folded(block).cpu(), x.cpu()))
        if source not in context.sessions:
            digest = torch.frombuffer(bytearray(source), dtype=torch.uint8)
            provider = provider_for(device) or CPU
            block_ = OnnxBlock(context.graphs[source], digest, torch.get_num_threads(), provider)
            _keep(context.sessions, source, block_)
        return context.sessions[source]
    except Exception as error:  # the exporter raises almost anything
        warnings.warn(
            f"ONNX Runtime cannot run this network ({error}); PyTorch runs it, more slowly.",
            TriphaseWarning,
            stacklevel=2,
        )
        return folded(block).to(device)


def _checksum(block: nn.Module) -> bytes:
    """SHA-256 of a block's layers and their values."""
    sha = hashlib.sha256(repr(block).encode())
    for tensor in block.state_dict().values():
        sha.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return sha.digest()


def _checked_graph(block: nn.Module, x: Tensor) -> Tensor:
    """The graph of a block, uint8, if it computes the same."""
    data = export_graph(block, x[:2])
    graph = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    probe = torch.rand(N_PROBES, *x.shape[1:], generator=torch.Generator().manual_seed(0))
    probe = probe * x.abs().amax().clamp(min=1.0).cpu()
    with torch.no_grad():
        expected, got = block(probe).flatten(1), OnnxBlock(graph, graph[:0], 1)(probe).flatten(1)
    difference = float((expected - got).abs().max())
    if difference > TOLERANCE * float(expected.std()) or not torch.equal(expected.argmax(1), got.argmax(1)):
        raise ValueError(f"it computes something else, by up to {difference:.2g}")
    return graph


def export_graph(
    block: nn.Module,
    x: Tensor,
    outputs: tuple[str, ...] = ("y",),
) -> bytes:
    """A block as an ONNX graph from "x", with any number of rows, to `outputs`."""
    file, rows = io.BytesIO(), {name: {0: "n"} for name in ("x", *outputs)}
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")  # torch is about to replace this exporter by one that takes ten seconds
        torch.onnx.export(
            block.eval(),
            (x.float(),),
            file,  # type: ignore[arg-type]  # the stub does not list buffers
            dynamo=False,
            input_names=["x"],
            output_names=list(outputs),
            dynamic_axes=rows,
            opset_version=OPSET,
        )
    return file.getvalue()
