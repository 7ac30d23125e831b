"""8-bit integers: what they are calibrated on, and what they lose."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from exports import ask, pixels_of
from lessons import SMALL, World, done, paint
from triphase.app.export import export
from triphase.app.export_check import TOLERANCE
from triphase.app.predictor import Predictor
from triphase.app.quantization import _store_in_half_
from triphase.errors import BadData


@pytest.mark.slow
def test_8_bit_integers_are_smaller_and_say_what_they_lose(lite0_model: Path, tmp_path: Path) -> None:
    done_ = export(lite0_model, tmp_path / "model.onnx", photos=lite0_model.with_name("test"), quantize=True)
    loss = done_.quantization
    assert loss is not None and (loss.calibrated, loss.measured, loss.other_photos) == (9, 9, True)
    assert loss.labelled == 9 and loss.float_accuracy == 1.0
    assert loss.bytes < 0.5 * loss.float_bytes and loss.speedup > 0
    pixels = pixels_of(lite0_model.with_name("test"), 64)
    probabilities, label, _ = ask(tmp_path / "model.onnx", pixels)
    whole, _ = Predictor.open(lite0_model)(pixels)
    assert np.mean(label == whole.argmax(1).numpy()) >= 0.8
    assert not np.allclose(probabilities, whole.numpy(), atol=TOLERANCE), "nothing was computed in 8 bits"
    graph = onnx.load(tmp_path / "model.onnx")
    assert [(entry.domain, entry.version) for entry in graph.opset_import] == [("", 17)], "any runtime reads it"
    about = {entry.key: entry.value for entry in graph.metadata_props}
    assert about["precision"] == "int8" and len(json.loads(about["classes"])) == 3


def test_8_bit_integers_need_photos_unless_pixels_are_stored(original: World, tmp_path: Path) -> None:
    with pytest.raises(BadData, match="stores no pixels: give a folder with --photos"):
        export(original.base, tmp_path / "model.onnx", quantize=True)
    done("teach", tmp_path / "raw", original.one, *SMALL, "--replay", "raw")
    loss = export(tmp_path / "raw", tmp_path / "model.onnx", quantize=True).quantization
    assert loss is not None and (loss.calibrated, loss.measured, loss.labelled) == (15, 15, 15)
    assert ask(tmp_path / "model.onnx", pixels_of(original.test, 8))[0].shape == (20, 3)


def test_a_single_photo_calibrates_and_measures(original: World, tmp_path: Path) -> None:
    paint(tmp_path / "photos", "red", range(1))
    loss = export(original.base, tmp_path / "model.onnx", photos=tmp_path / "photos", quantize=True).quantization
    assert loss is not None and (loss.calibrated, loss.measured, loss.other_photos) == (1, 1, False)
    assert (loss.labelled, loss.accuracy) == (0, None), "it lies in no folder of a class"


def test_matrices_that_half_precision_cannot_hold_stay_as_they_are() -> None:
    values = {"answer/small": 1.0, "answer/huge": 1e6, "csf_0/weight": 1.0}
    matrices = [numpy_helper.from_array(np.full((256, 256), v, np.float32), name) for name, v in values.items()]
    graph = helper.make_model(helper.make_graph([], "matrices", [], [], matrices))
    _store_in_half_(graph)
    kinds = {tensor.name: tensor.data_type for tensor in graph.graph.initializer}
    assert kinds["answer/huge"] == kinds["csf_0/weight"] == TensorProto.FLOAT
    assert kinds["answer/small/half"] == TensorProto.FLOAT16 and "answer/small" not in kinds
    assert [(node.op_type, *node.output) for node in graph.graph.node] == [("Cast", "answer/small")]
