"""A predictor as one ONNX graph: the graphs of its frozen blocks, then the layers from features to answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import onnx
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.compose import add_prefix
from torch import Tensor, nn

from triphase.app.answers import Calibration, ood_scores
from triphase.image_size import load_size
from triphase.models.engine import OPSET, OnnxBlock, export_graph
from triphase.models.inference import Ensemble, Member, Whitening, load_ensemble
from triphase.models.stored_blocks import StoredBlocks

INPUT = "pixels"  # uint8 (n, size, size, 3), RGB: as Pillow and numpy give an image
LATENTS = "latents"  # the output of llf, float (n, ...)
OUTPUTS = ("probabilities", "class", "unknown")
ANSWER = "answer/"  # prefix of the nodes that turn features into answers
IR_VERSION = 8  # the oldest that this set of operators needs, so that older runtimes read it


class AnswerLayers(nn.Module):
    """Turns the features of all members, (n, D_1 + D_2 + ...), into probabilities, class and unknown flag."""

    def __init__(self, ensemble: Ensemble, calibration: Calibration, widths: list[int]) -> None:
        super().__init__()
        ends = torch.tensor(widths).cumsum(0).tolist()
        columns = iter([_Columns(end - width, end) for end, width in zip(ends, widths, strict=True)])
        self.ensemble, self.calibration = ensemble.with_csf(lambda csf: next(columns)), calibration
        for member in self.ensemble.members:
            assert isinstance(member, Member)
            if member.whitening is not None:
                member.whitening = _MultipliedWhitening(member.whitening)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, distances = self.ensemble(features)
        probabilities = self.calibration.probabilities(logits)
        known = self.calibration.accepts(ood_scores(logits, distances))
        return probabilities, probabilities.argmax(1), ~known


class _Columns(nn.Module):
    """The features of one member."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__()
        self.start, self.stop = start, stop

    def forward(self, features: Tensor) -> Tensor:
        return features[:, self.start : self.stop]


class _MultipliedWhitening(Whitening):
    """Whitening as a product with the inverse factor, because ONNX has no triangular solve."""

    inverse: Tensor  # (D, D)

    def __init__(self, of: Whitening) -> None:
        super().__init__(of.factor, of.means, of.centre)
        identity = torch.eye(len(of.factor), dtype=torch.float64)
        inverse = torch.linalg.solve_triangular(of.factor.double(), identity, upper=False)
        self.register_buffer("inverse", inverse.float())

    def whitened(self, f: Tensor) -> Tensor:
        return (f - self.centre) @ self.inverse.T


@torch.inference_mode()
def answer_graph(parts: Mapping[str, Any], start: Literal["pixels", "latents"] = "pixels") -> ModelProto:
    """The graph from uint8 pixels (n, size, size, 3), or float latents (n, ...), to OUTPUTS, of inference parts."""
    about = parts["inference"]
    size = load_size(about)
    blocks = StoredBlocks(about["backbone"], size)
    llf, ensemble = blocks.llf(parts["inference_llf"]), load_ensemble(_joined(parts), blocks.csf)
    x = torch.zeros(2, 3, size, size)
    z = llf(x)
    members = [member for member in ensemble.members if isinstance(member, Member)]
    features = [member.csf(z) for member in members]
    layers = AnswerLayers(ensemble, Calibration.stored(about), [f.shape[1] for f in features])
    whole = _GraphBuilder()
    if start == "pixels":
        whole.node("Cast", [INPUT], "float_pixels", to=TensorProto.FLOAT)
        whole.node("Transpose", ["float_pixels"], "planes", perm=[0, 3, 1, 2])
        whole.block(_graph_of(llf, x), "llf/", "planes")
        given = helper.make_tensor_value_info(INPUT, TensorProto.UINT8, ["n", size, size, 3])
    else:
        whole.node("Identity", [LATENTS], "llf/y")
        given = helper.make_tensor_value_info(LATENTS, TensorProto.FLOAT, ["n", *z.shape[1:]])
    for number, member in enumerate(members):
        whole.block(_graph_of(member.csf, z), f"csf_{number}/", "llf/y")
    whole.node("Concat", [f"csf_{number}/y" for number in range(len(members))], "features", axis=1)
    last = onnx.load_from_string(export_graph(layers, torch.cat(features, 1), OUTPUTS))
    whole.block(last, ANSWER, "features")
    for name in OUTPUTS:
        whole.node("Identity", [f"{ANSWER}{name}"], name)
    return whole.model(given, len(about["names"]))


def _joined(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The state of the ensemble out of its parts."""
    state = parts["inference_scores"]
    members = [member | {"csf": parts[f"inference_csf_{i}"]} for i, member in enumerate(state["members"])]
    return {**state, "members": members}


class _GraphBuilder:
    """The nodes and initializers of a graph that is put together from others."""

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []
        self._initializers: list[TensorProto] = []

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> None:
        self._nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))

    def block(self, model: ModelProto, prefix: str, source: str) -> None:
        """Append a graph that reads `source` as its "x"; its names get the prefix."""
        versions = {entry.domain: entry.version for entry in model.opset_import}
        if versions != {"": OPSET}:
            raise ValueError(f"a block has operators of the versions {versions}, and others of {OPSET}")
        graph = add_prefix(model, prefix).graph
        self.node("Identity", [source], f"{prefix}x")
        self._nodes += graph.node
        self._initializers += graph.initializer

    def model(self, given: Any, n_classes: int) -> ModelProto:
        made = [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", n_classes]),
            helper.make_tensor_value_info("class", TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("unknown", TensorProto.BOOL, ["n"]),
        ]
        graph = helper.make_graph(self._nodes, "triphase", [given], made, self._initializers)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="triphase")
        onnx.checker.check_model(model)
        return model


def _graph_of(block: nn.Module, x: Tensor) -> ModelProto:
    """The stored graph of a block, or one that is exported now."""
    graph = block.graph.numpy().tobytes() if isinstance(block, OnnxBlock) else export_graph(block, x)
    return onnx.load_from_string(graph)
