"""A predictor answers as the learner does, from any number of threads, and changes nothing."""

import copy
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from lessons import SMALL, World, done, paint
from triphase.app import predictor as module
from triphase.app.inference_parts import inference_parts
from triphase.app.model import Model
from triphase.app.predictor import Answer, Predictor
from triphase.app.publishing import version_state
from triphase.app.refit import inference_with_held_out
from triphase.app.store.versions import Store
from triphase.app.teach import teach
from triphase.context import Context
from triphase.data.decoding import decode
from triphase.data.feature_cache import latents, unpack
from triphase.data.images import Images
from triphase.errors import CorruptState, TriphaseWarning
from triphase.state import State

THREADS, CALLS = 8, 60


def photos(folder: Path, size: int = 8) -> Images:
    files = sorted(folder.rglob("*.png"))
    pixels = torch.stack([decode(file, size) for file in files])
    return Images.from_array(pixels, torch.zeros(len(files), dtype=torch.long))


def arrays(value: Any, name: str = "") -> dict[str, NDArray[Any]]:
    """Every array of a state by its path."""
    if isinstance(value, np.ndarray | Tensor):
        return {name: np.asarray(value)}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path: leaf for key, item in items for path, leaf in arrays(item, f"{name}/{key}").items()}


@pytest.fixture(scope="module", params=["anchored", "anchored --replay none", "tpc", "slda", "ncm"])
def model(request: pytest.FixtureRequest, original: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with each learner; the test photos lie beside it."""
    folder = tmp_path_factory.mktemp("predictor")
    shutil.copytree(original.test, folder / "test")
    done("teach", folder / "model", original.one, *SMALL, "--learner", *request.param.split())
    return folder / "model"


def test_it_scores_as_the_learner_does(model: Path) -> None:
    taught = Model.from_state(Store(model).load()[0])
    images = photos(model.with_name("test"))
    z = unpack(latents(taught.network, images, context=taught.context))
    logits, expected_scores = inference_with_held_out(taught)(z)
    expected = (logits / taught.calibration.temperature).softmax(1)
    probabilities, known = Predictor.open(model).predict(images)
    assert torch.allclose(probabilities, expected, atol=1e-4) and known.shape == (len(images),)
    closed = taught.learner.closed_form
    if closed is not None and closed.has_covariance:
        f = closed.features(z)
        _, distances = taught.learner.inference()(z)
        assert torch.allclose(distances.double(), closed.distances(f), rtol=1e-3, atol=1e-2)
        _, scores = Predictor.open(model).scores(images.read(torch.arange(len(images))))
        assert torch.allclose(scores, expected_scores, rtol=1e-3, atol=1e-2)


def test_where_there_are_graphs_torch_is_not_needed_and_answers_are_the_same(
    original: World, tmp_path: Path
) -> None:
    options = {"backbone": "small_cnn", "image_size": 8, "memory": 60}
    teach(tmp_path / "model", original.one, options, context=Context(engine="onnx"))
    files = sorted(original.test.rglob("*.png"))
    code = "import sys; sys.modules['torch'] = None; from triphase.cli import main; main()"
    command = [sys.executable, "-c", code, "predict", str(tmp_path / "model"), *map(str, files), "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["answers"]
    taught = Model.from_state(Store(tmp_path / "model").load()[0])
    z = unpack(latents(taught.network, photos(original.test), context=taught.context))
    logits, scores = inference_with_held_out(taught)(z)
    probability, best = taught.calibration.probabilities(logits).max(1)
    assert [answer["best"] for answer in said] == [taught.names[label] for label in best.tolist()]
    assert [answer["known"] for answer in said] == taught.calibration.accepts(scores).tolist()
    assert [answer["probability"] for answer in said] == pytest.approx(probability.tolist(), abs=1e-4)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_cannot_run_the_graphs_gives_a_warning_and_the_cpu_answers(
    device: str, original: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"backbone": "small_cnn", "image_size": 8, "memory": 60}
    teach(tmp_path / "model", original.one, options, context=Context(engine="onnx"))
    monkeypatch.setattr("triphase.device._count", lambda kind: int(kind == device))
    with pytest.warns(TriphaseWarning, match=f"ONNX Runtime offers nothing for {device} here.* the CPU answers"):
        predictor = Predictor.open(tmp_path / "model", device)
    images = photos(original.test)
    expected = Predictor.open(tmp_path / "model", "auto").predict(images)  # which asks for no device: no warning
    assert predictor.device == "cpu" and torch.equal(predictor.predict(images)[0], expected[0])


def test_many_threads_get_the_answers_of_one_and_change_nothing(model: Path) -> None:
    predictor, images = Predictor.open(model), photos(model.with_name("test"))
    pixels = images.read(torch.arange(len(images)))
    rows = [torch.arange(call % 3, len(pixels), 1 + call % 4) for call in range(CALLS)]
    expected = [predictor(pixels[part]) for part in rows]
    state = [vars(member) for member in predictor._members]
    before = copy.deepcopy(arrays(state))

    def ask(_: int) -> bool:
        pairs = zip([predictor(pixels[part]) for part in rows], expected, strict=True)
        return all(torch.equal(got[0], want[0]) and torch.equal(got[1], want[1]) for got, want in pairs)

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(ask, range(THREADS)))
    after = arrays(state)
    assert before and before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_it_reads_the_inference_parts_alone(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    version = Store(model).version()
    name_of = {part.sha256: name for name, part in version.parts.items()}
    directory = Store(model).directory
    real = type(directory).read_part

    def read_part(self: Any, digest: str, **how: Any) -> Any:
        read.append(name_of[digest])
        return real(self, digest, **how)

    monkeypatch.setattr(type(directory), "read_part", read_part)
    Predictor.open(model)
    assert read and len(read) == len(set(read)) and not {"memory", "taught", "momentum"} & set(read)


def test_it_does_not_follow_a_model_that_learns_on(model: Path) -> None:
    taught = Model.from_state(Store(model).load()[0])
    predictor, images = Predictor(inference_parts(taught)), photos(model.with_name("test"))
    before = predictor.predict(images)
    with torch.no_grad():
        for parameter in (*taught.network.csf.parameters(), taught.network.head.weight):
            parameter += 1
    after = predictor.predict(images)
    assert torch.equal(before[0], after[0]) and torch.equal(before[1], after[1])


@pytest.mark.parametrize("damage", ["missing", "names", "weight", "llf"])
def test_parts_that_do_not_belong_together_are_refused(model: Path, damage: str) -> None:
    state: State = version_state(Model.from_state(Store(model).load()[0]))
    if damage == "missing":
        del state["inference_csf_0"]
    elif damage == "names":
        state["inference"] = state["inference"] | {"names": None}
    elif damage == "weight":
        state["inference_scores"]["members"][0]["weight"] = torch.zeros(1, 1)
    else:
        state["inference_llf"] = {"0.weight": torch.zeros(1)}
    with pytest.raises(CorruptState, match="do not belong together"):
        Predictor(state)


def test_files_that_cannot_be_read_do_not_keep_the_others_from_an_answer(model: Path, tmp_path: Path) -> None:
    paint(tmp_path / "red", "red", range(3))
    (tmp_path / "empty.jpg").touch()
    files = [tmp_path / name for name in ("red/0.png", "empty.jpg", "none.png", "red", "red/2.png")]
    answers = Predictor.open(model).answer_files(files)
    assert [type(answer) for answer in answers] == [Answer, str, str, str, Answer]
    for answer, sentence in zip(answers[1:4], ("empty.jpg", "There is no file", "is a folder"), strict=True):
        assert sentence in str(answer)


def test_memory_stays_bounded_however_many_images_there_are(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIXELS", 3 * 8**2)
    predictor, images = Predictor.open(model), photos(model.with_name("test"))
    read: list[int] = []

    def reader(rows: Tensor) -> Tensor:
        read.append(len(rows))
        return images.read(rows)

    probabilities, _ = predictor.predict(Images(reader, images.labels, images.ids))
    assert len(probabilities) == len(images) and max(read) == predictor.chunk == 3
    assert predictor.predict(images.select(torch.arange(0)))[0].shape == (0, len(predictor.names))
