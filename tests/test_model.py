"""A model whose latents carry summaries: what it stores, and lessons from beginning to end."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from lessons import done, model_of, paint
from triphase.app.inference_parts import inference_parts
from triphase.app.model import Model
from triphase.app.options import ModelOptions
from triphase.app.predictor import Predictor
from triphase.app.refit import inference_with_held_out
from triphase.app.store.versions import Store
from triphase.context import Context
from triphase.data.decoding import decode
from triphase.errors import InvalidValue
from triphase.models import DepthFeatures

NUMBERS = 16 * 112 + 24 + 40 + 80  # of a latent at 64 px


def test_room_is_counted_in_whole_latents() -> None:
    memory = Model(ModelOptions(image_size=64, memory="60KB")).memory
    assert memory is not None
    assert memory.capacity == 60_000 // (2 * NUMBERS + 41 + 2 * 2560 // 4)


@pytest.fixture(scope="module")
def lessons(lite0_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two lessons; the photos of the second lie beside it."""
    folder = tmp_path_factory.mktemp("summaries")
    shutil.copytree(lite0_model, folder / "model")
    for colour in ("yellow", "red"):
        paint(folder / "second" / colour, colour, range(10, 18))
    done("teach", folder / "model", folder / "second")
    return folder


@pytest.mark.slow
def test_summaries_are_stored_and_read_by_the_closed_form(lessons: Path) -> None:
    taught = model_of(lessons / "model")
    memory, closed = taught.memory, taught.learner.closed_form
    assert memory is not None and memory["z"].shape == (len(memory), NUMBERS)
    assert closed is not None and isinstance(closed.feature_model.csf, DepthFeatures)
    assert taught.closed_form_features(memory["z"]).shape == (len(memory), 144 + 2176)


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_a_predictor_computes_what_the_model_does(engine: str, lessons: Path) -> None:
    state = Store(lessons / "model").load()[0]
    taught = Model.from_state(state, Context(engine=engine))  # type: ignore[arg-type]
    x = torch.stack([decode(file, 64) for file in sorted((lessons / "second").rglob("*.png"))])
    predictor = Predictor(inference_parts(taught))
    with torch.no_grad():
        logits, _ = inference_with_held_out(taught)(taught.network.encode(x))
    expected = taught.calibration.probabilities(logits)
    torch.testing.assert_close(predictor(x)[0], expected, rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_photos_and_classes_are_removed_and_answers_go_on(lessons: Path, tmp_path: Path) -> None:
    model = shutil.copytree(lessons / "model", tmp_path / "model")
    done("unteach", model, lessons / "second" / "red")
    done("forget", model, "green")
    paint(tmp_path / "test", "blue", range(100, 103))
    said = json.loads(done("predict", model, *sorted((tmp_path / "test").iterdir()), "--json").out)
    assert [answer["best"] for answer in said["answers"]] == ["blue"] * 3


def test_a_seed_that_no_version_can_hold_is_refused() -> None:
    for seed in (-(2**63), 2**64 - 1):
        assert ModelOptions(seed=seed).seed == seed
    for seed in (-(2**63) - 1, 2**64, 10**5000):
        with pytest.raises(InvalidValue, match="seed must be"):
            ModelOptions(seed=seed)
