"""Small photos are not blown up to the size of the network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lessons import done
from triphase import ContinualClassifier
from triphase.app.photo_size import size_for, size_for_folder, size_for_pictures
from triphase.data.decoding import short_side
from triphase.errors import BadData


def save(folder: Path, name: str, width: int, height: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), (width % 256, 9, 9)).save(folder / name)


@pytest.mark.parametrize(("side", "size"), [(28, 96), (32, 96), (40, 128), (64, 192), (75, 224), (3000, 224)])
def test_pictures_are_enlarged_three_times_at_most(side: int, size: int) -> None:
    assert size_for([side] * 5, 224) == size


def test_one_large_photo_among_small_ones_changes_nothing() -> None:
    assert size_for([32, 32, 32, 32, 4000], 224) == 96


def test_the_short_sides_of_a_folder_decide(tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path / "a", f"{number}.png", 300 + number, 40)
    (tmp_path / "a" / "bad.jpg").write_bytes(b"no picture")
    assert size_for_folder(tmp_path, 224) == 128


def test_a_short_side_is_read_without_decoding(tmp_path: Path) -> None:
    save(tmp_path, "x.png", 70, 50)
    assert short_side(tmp_path / "x.png") == 50
    with pytest.raises(BadData, match="There is no file"):
        short_side(tmp_path / "y.png")


@pytest.mark.parametrize("kind", ["array", "pil", "channels first"])
def test_pictures_of_programs_decide_as_well(kind: str) -> None:
    pixels = np.zeros((4, 32, 32, 3), dtype=np.uint8)
    pictures: dict[str, Any] = {
        "array": pixels,
        "pil": [Image.fromarray(p) for p in pixels],
        "channels first": pixels.transpose(0, 3, 1, 2),
    }
    assert size_for_pictures(pictures[kind], 224) == 96
    assert size_for_pictures([3], 224) == 224, "which is refused by whoever reads them"


def test_a_model_keeps_the_size_of_its_first_lesson(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for number in range(6):
            width = number + 10 * "ab".index(name)
            save(tmp_path / "one" / name, f"{number}.png", 32 + width, 32)
            save(tmp_path / "two" / name, f"{number}.png", 400 + width, 300)
    model = tmp_path / "model"
    done("teach", model, tmp_path / "one", "--learner", "ncm")
    done("teach", model, tmp_path / "two")
    assert '"image_size": 96' in done("status", model, "--json").out


def test_a_classifier_takes_more_images_after_the_first(tmp_path: Path) -> None:
    small, large = (np.random.default_rng(0).integers(0, 256, (8, s, s, 3), dtype=np.uint8) for s in (32, 120))
    classifier = ContinualClassifier(learner="ncm").partial_fit(small, [0, 1] * 4).partial_fit(large, [0, 1] * 4)
    assert classifier.model_.size == 96
