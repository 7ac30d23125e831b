"""An exported file answers as the predictor does, says how to use it, and is written only then."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image

from exports import ask, assert_same_answers, pixels_of
from lessons import SMALL, World, content, done
from triphase.app.export import export
from triphase.app.export_check import TOLERANCE, Parity, check_pixels
from triphase.app.predictor import Predictor
from triphase.app.store.versions import Store
from triphase.errors import BadData, CannotWrite, InvalidValue

EXAMPLE = Path(__file__).parents[1] / "examples" / "onnx_predict.py"
LEARNERS = ["anchored", "anchored --replay raw", "anchored --replay none", "tpc", "slda", "ncm"]


@pytest.fixture(scope="module", params=LEARNERS)
def model(request: pytest.FixtureRequest, original: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with each learner; the test photos lie beside it."""
    folder = tmp_path_factory.mktemp("export")
    shutil.copytree(original.test, folder / "test")
    done("teach", folder / "model", original.one, *SMALL, "--learner", *request.param.split())
    return folder / "model"


def test_it_answers_as_the_predictor_does_whatever_the_learner(model: Path, tmp_path: Path) -> None:
    before = content(model)
    done_ = export(model, tmp_path / "model.onnx")
    assert content(model) == before
    assert_same_answers(model, tmp_path / "model.onnx", model.with_name("test"))
    assert done_.bytes == (tmp_path / "model.onnx").stat().st_size
    assert done_.parity.difference <= TOLERANCE and (done_.parity.other_class, done_.parity.other_flag) == (0, 0)
    latents = "memory" in Store(model).version().parts and done_.checked_on == "generated images"
    assert (done_.latents is not None) == latents


def test_some_photos_are_known_and_others_unknown(original: World, tmp_path: Path) -> None:
    _, known = Predictor.open(original.base)(pixels_of(original.test, 8))
    assert 0 < int(known.sum()) < len(known), "else the tests above say nothing about the flag"


@pytest.mark.slow
def test_a_pre_trained_network_is_exported_from_its_stored_graphs(lite0_model: Path, tmp_path: Path) -> None:
    done_ = export(lite0_model, tmp_path / "model.onnx", photos=lite0_model.with_name("test"))
    assert (done_.checked_on, done_.parity.n, done_.latents) == ("photos", 18, None)
    assert_same_answers(lite0_model, tmp_path / "model.onnx", lite0_model.with_name("test"))
    by_latents = export(lite0_model, tmp_path / "model.onnx")
    assert by_latents.checked_on == "generated images"
    assert by_latents.latents is not None and by_latents.latents.n == 24


def test_the_metadata_say_what_a_program_must_know(original: World, tmp_path: Path) -> None:
    export(original.base, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == list(Predictor.open(original.base).names)
    how = json.loads(about["preprocessing"])
    assert (how["size"], how["layout"], how["channels"], how["range"]) == (8, "NHWC", "RGB", [0, 255])
    assert about["precision"] == "float32" and about["model_version"] == "1" and about["triphase_version"]
    (given,) = session.get_inputs()
    assert (given.name, given.type, given.shape) == ("pixels", "tensor(uint8)", ["n", 8, 8, 3])
    assert [out.name for out in session.get_outputs()] == ["probabilities", "class", "unknown"]


def test_the_same_model_gives_the_same_file(original: World, tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        export(original.base, tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_a_model_of_one_class_is_sure_of_it(original: World, tmp_path: Path) -> None:
    done("teach", tmp_path / "model", tmp_path_with(original, tmp_path, "red"), *SMALL)
    export(tmp_path / "model", tmp_path / "model.onnx")
    probabilities, label, _ = ask(tmp_path / "model.onnx", pixels_of(original.test, 8))
    assert np.all(probabilities == 1) and not label.any()


def tmp_path_with(world: World, folder: Path, colour: str) -> Path:
    """A folder of photos of one class."""
    shutil.copytree(world.one / colour, folder / "photos" / colour)
    return folder / "photos"


def test_an_onnx_file_is_replaced_and_nothing_else_is(world: World, tmp_path: Path) -> None:
    (tmp_path / "old.onnx").write_bytes(b"old")
    export(world.base, tmp_path / "old.onnx")
    assert onnx.load(tmp_path / "old.onnx").producer_name == "triphase"
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "folder.onnx").mkdir()
    for name, sentence in (("notes.txt", "does not end in .onnx"), ("folder.onnx", "is no file")):
        with pytest.raises(InvalidValue, match=sentence):
            export(world.base, tmp_path / name)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(InvalidValue, match="lies in the folder of the model"):
        export(world.base, world.base / "model.onnx")


def test_a_folder_that_is_no_model_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="holds no model; teach one"):
        export(tmp_path / "nothing", tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_file(original: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotWrite, match=r"Cannot write .*model.onnx: No space left.*make room"):
        export(original.base, tmp_path / "model.onnx")
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert (tmp_path / "model.onnx").read_bytes() == b"old"


def difficult_photos(folder: Path) -> list[Path]:
    """A large JPEG that lies on its side, a transparent PNG, a grey one, and one with a palette."""
    folder.mkdir()
    rows = np.linspace(0, 255, 900)[:, None, None] * np.array([1.0, 0.5, 0.2])
    photo = Image.fromarray(np.broadcast_to(rows, (900, 1400, 3)).astype(np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    photo.save(folder / "side.jpg", exif=exif)
    clear = photo.resize((90, 70)).convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize((90, 70)))
    clear.save(folder / "clear.png")
    photo.resize((50, 80)).convert("L").save(folder / "grey.png")
    photo.resize((50, 80)).quantize(16).save(folder / "palette.png")
    return sorted(folder.iterdir())


def test_the_example_answers_as_predict_does_without_torch_or_triphase(lite0_model: Path, tmp_path: Path) -> None:
    photos = [*difficult_photos(tmp_path / "photos"), *sorted(lite0_model.with_name("test").rglob("*0.png"))]
    export(lite0_model, tmp_path / "model.onnx")
    alone = "import runpy, sys; sys.modules.update(torch=None, triphase=None); sys.argv[:] = sys.argv[1:]; "
    command = [sys.executable, "-c", f"{alone}runpy.run_path(sys.argv[0], run_name='__main__')"]
    answer = subprocess.run(
        [*command, EXAMPLE, tmp_path / "model.onnx", *photos], capture_output=True, text=True, check=True
    )
    expected = Predictor.open(lite0_model).answer_files(photos)
    for line, file, said in zip(answer.stdout.splitlines(), photos, expected, strict=True):
        assert not isinstance(said, str)
        assert line.startswith(f"{file}: {said.label} (") and said.best in line
        share = float(line.rsplit("%", 1)[0].rsplit(" ", 1)[-1].lstrip("("))
        assert share == pytest.approx(100 * said.probability, abs=2)  # it is turned before it is scaled


def test_the_file_is_compared_with_the_model_on_the_device_that_is_named(
    original: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Placed(Predictor):
        """Computes on the CPU and knows where it should."""

        def __init__(
            self, parts: Mapping[str, Any], device: str | torch.device = "cpu", threads: int | None = None
        ) -> None:
            super().__init__(parts, threads=threads)
            self.wanted = device

    compared: list[str | torch.device] = []

    def compare(predictor: Placed, *given: Any) -> Parity:
        compared.append(predictor.wanted)
        return check_pixels(predictor, *given)

    monkeypatch.setattr("triphase.app.export.Predictor", Placed)
    monkeypatch.setattr("triphase.app.export.check_pixels", compare)
    for device in ("cpu", torch.device("cuda:1")):
        export(original.base, tmp_path / "model.onnx", photos=original.test, device=device)
    assert compared == ["cpu", torch.device("cuda:1")]
