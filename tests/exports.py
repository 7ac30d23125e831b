"""What tests of exported models share."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor

from triphase.app.export_check import TOLERANCE
from triphase.app.predictor import Predictor
from triphase.data.decoding import decode


def pixels_of(folder: Path, size: int) -> Tensor:
    return torch.stack([decode(file, size) for file in sorted(folder.rglob("*.png"))])


def ask(file: Path, pixels: Tensor) -> list[Any]:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    answers: list[Any] = session.run(None, {"pixels": pixels.permute(0, 2, 3, 1).contiguous().numpy()})
    return answers


def assert_same_answers(model: Path, file: Path, photos: Path) -> None:
    predictor = Predictor.open(model)
    pixels = pixels_of(photos, predictor.size)
    expected, known = predictor(pixels)
    for n in (1, 3, len(pixels)):
        probabilities, label, unknown = ask(file, pixels[:n])
        assert probabilities.dtype == np.float32 and label.dtype == np.int64 and unknown.dtype == np.bool_
        np.testing.assert_allclose(probabilities, expected[:n].numpy(), atol=TOLERANCE, rtol=0)
        assert label.tolist() == expected[:n].argmax(1).tolist()
        assert unknown.tolist() == (~known[:n]).tolist()
