"""Taught photos by likeness."""

import shutil
from pathlib import Path

import pytest
import torch

from lessons import SMALL, World, done, model_of
from triphase.app.model import Model
from triphase.app.predictor import Predictor
from triphase.app.taught_index import TaughtIndex
from triphase.data.decoding import decode
from triphase.data.sources.files import file_id
from triphase.models.inference import Ensemble


@pytest.fixture(scope="module", params=["anchored", "anchored --replay raw", "tpc", "slda", "ncm"])
def taught(request: pytest.FixtureRequest, original: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with each learner; its photos lie beside it."""
    folder = tmp_path_factory.mktemp("index")
    shutil.copytree(original.one, folder / "one")
    shutil.copytree(original.test, folder / "test")
    done("teach", folder / "model", folder / "one", *SMALL, "--learner", *request.param.split())
    return folder / "model"


def test_a_taught_photo_is_nearest_to_itself(taught: Path) -> None:
    index, predictor = TaughtIndex(model_of(taught)), Predictor.open(taught)
    photo = taught.with_name("one") / "green" / "3.png"
    features = predictor.features(decode(photo, predictor.size).unsqueeze(0))
    ((first, *others),) = index.nearest(features, k=4)
    assert (first.id, first.name) == (file_id(photo), "green") and first.similarity == pytest.approx(1, abs=1e-2)
    assert len(others) == 3 and all(
        1 >= a.similarity >= b.similarity for a, b in zip(others, others[1:], strict=False)
    )
    ((next_, *_),) = index.nearest(features, k=1, without=[first.id])
    assert next_ == others[0]


def test_photos_of_a_colour_are_near_to_those_of_that_colour(taught: Path) -> None:
    index, predictor = TaughtIndex(model_of(taught)), Predictor.open(taught)
    for colour in index.names:
        files = sorted((taught.with_name("test") / colour).iterdir())
        features = predictor.features(torch.stack([decode(file, predictor.size) for file in files]))
        names = [neighbour.name for found in index.nearest(features, k=3) for neighbour in found]
        assert names.count(colour) > 0.7 * len(names)


def test_held_out_photos_are_marked(taught: Path) -> None:
    model = model_of(taught)
    index = TaughtIndex(model)
    assert set(index.ids[index.held_out].tolist()) == set(model.exemplars()[0].tolist())
    neighbours = index.nearest(index.features[:1], k=len(index))[0]
    assert {n.id for n in neighbours if n.held_out} == set(index.ids[index.held_out].tolist())


def test_features_of_another_version_are_taken_over_if_the_same_network_reads_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = TaughtIndex(model_of(world.base))
    done("teach", world.base, world.two, "--force")
    model, read = model_of(world.base), []
    real = Model.stored

    def stored(self: Model, slots: torch.Tensor) -> torch.Tensor:
        read.append(len(slots))
        return real(self, slots)

    fresh = TaughtIndex(model)
    monkeypatch.setattr(Model, "stored", stored)
    index = TaughtIndex(model, before)
    assert sum(read) < 15, "only of photos of the second lesson"
    assert torch.equal(index.features, fresh.features)


def test_nothing_is_computed_if_all_features_are_known(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = TaughtIndex(model_of(world.base))
    done("rename", world.base, "red", "rouge")
    monkeypatch.setattr(Ensemble, "features", lambda self, z: pytest.fail("even an empty batch is too much"))
    index = TaughtIndex(model_of(world.base), before)
    assert torch.equal(index.features, before.features) and "rouge" in index.names


def test_the_distance_of_photos_of_one_class_is_below_that_of_the_nearest_other(world: World) -> None:
    index = TaughtIndex(model_of(world.base))
    apart, halves = index.distances(index.features), []
    assert torch.allclose(apart.diagonal(), torch.zeros(len(index)), atol=1e-5)
    of_class = [index.labels == label for label in range(3)]
    for own in of_class:
        within = float(apart[own][:, own].sum()) / (10 * 9)
        nearest = min(float(apart[own][:, other].mean()) for other in of_class if other is not own)
        assert within < nearest
        halves.append((within + nearest) / 2)
    assert index.same_class_distance() == pytest.approx(sum(halves) / 3, abs=1e-4)


def test_a_single_class_has_a_distance_too(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.one / "red", tmp_path / "one" / "red")
    done("teach", tmp_path / "m", tmp_path / "one", *SMALL)
    assert TaughtIndex(model_of(tmp_path / "m")).same_class_distance() == 0.75


def test_a_model_that_stores_nothing_has_no_neighbours(world: World, tmp_path: Path) -> None:
    done("teach", tmp_path / "m", world.one, *SMALL, "--replay", "none")
    index, predictor = TaughtIndex(model_of(tmp_path / "m")), Predictor.open(tmp_path / "m")
    features = predictor.features(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    assert len(index) == 0 and index.nearest(features) == [[], []]
    assert index.distances(features).shape == (2, 2) and index.same_class_distance() == 0.75
