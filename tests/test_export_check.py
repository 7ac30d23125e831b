"""An exported graph is compared with the predictor: differences that matter are errors."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import triphase.app.export as module
from exports import pixels_of
from lessons import World
from triphase.app.answer_graph import answer_graph
from triphase.app.answers import Calibration
from triphase.app.export import export
from triphase.app.export_check import check_latents, check_pixels
from triphase.app.predictor import Predictor
from triphase.errors import Mismatch


@pytest.mark.parametrize("photos", [True, False], ids=["photos", "stored latents"])
def test_a_graph_that_answers_otherwise_is_not_written(
    original: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photos: bool
) -> None:
    def warmer(parts: dict[str, Any], *start: Any) -> Any:
        about = parts["inference"]
        return answer_graph(parts | {"inference": about | {"temperature": 1.5 * about["temperature"]}}, *start)

    monkeypatch.setattr(module, "answer_graph", warmer)
    with pytest.raises(Mismatch, match=r"does not answer as the model does: .*Nothing was written"):
        export(original.base, tmp_path / "model.onnx", photos=original.test if photos else None)
    assert list(tmp_path.iterdir()) == []


def test_another_class_or_flag_counts_unless_rounding_may_decide_it(original: World) -> None:
    predictor = Predictor.open(original.base)
    pixels = pixels_of(original.test, 8)

    def run(part: Tensor, other_class: bool = False, other_flag: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        probabilities, known = predictor(part)
        label = probabilities.argmax(1)
        return probabilities, (label + 1) % 3 if other_class else label, known if other_flag else ~known

    assert check_pixels(predictor, run, pixels).n == len(pixels)
    with pytest.raises(Mismatch, match="20 have another class, 0 differ"):
        check_pixels(predictor, lambda part: run(part, other_class=True), pixels)
    with pytest.raises(Mismatch, match="0 have another class, 20 differ"):
        check_pixels(predictor, lambda part: run(part, other_flag=True), pixels)
    _, ood = predictor.scores(pixels[:1])
    predictor.calibration = Calibration(predictor.calibration.temperature, tuple(ood[0].tolist()))
    assert check_pixels(predictor, lambda part: run(part, other_flag=True), pixels[:1]).other_flag == 0


def test_answers_that_are_no_numbers_are_refused(original: World) -> None:
    predictor = Predictor.open(original.base)
    z = predictor.latents(pixels_of(original.test, 8))

    def run(part: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, ood = predictor.latent_scores(part)
        probabilities = predictor.calibration.probabilities(logits)
        return probabilities * torch.nan, probabilities.argmax(1), ~predictor.calibration.accepts(ood)

    with pytest.raises(Mismatch, match="differ by up to nan"):
        check_latents(predictor, run, z)
