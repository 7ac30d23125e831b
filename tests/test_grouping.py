"""Photos without labels in groups, and in the order in which labels teach most."""

from pathlib import Path

import pytest
import torch

from lessons import SMALL, World, done, model_of, paint
from triphase.app.answers import doubts
from triphase.app.grouping import MAX_PHOTOS, group_similar, rank_by_informativeness
from triphase.app.predictor import Predictor
from triphase.app.taught_index import TaughtIndex
from triphase.data.decoding import decode
from triphase.errors import InvalidValue


def features_of(model: Path, files: list[Path]) -> torch.Tensor:
    predictor = Predictor.open(model)
    features: torch.Tensor = predictor.features(torch.stack([decode(file, predictor.size) for file in files]))
    return features


def test_photos_of_a_class_that_was_never_taught_form_a_group(world: World) -> None:
    paint(world.test / "more", "yellow", range(200, 206))
    files = [*sorted((world.test / "more").iterdir()), *sorted((world.test / "blue").iterdir())]
    groups = group_similar(TaughtIndex(model_of(world.base)), features_of(world.base, files))
    assert sorted(row for rows in groups for row in rows) == list(range(11))
    assert not any({row < 6 for row in rows} == {True, False} for rows in groups), "no group has both colours"
    assert len(groups) <= 4 and [len(rows) for rows in groups] == sorted(map(len, groups), reverse=True)


def test_few_photos_and_models_that_store_nothing(world: World, tmp_path: Path) -> None:
    index = TaughtIndex(model_of(world.base))
    files = sorted((world.test / "red").iterdir())
    features = features_of(world.base, files)
    assert group_similar(index, features[:0]) == [] and group_similar(index, features[:1]) == [[0]]
    assert group_similar(index, features[[0, 0]]) == [[0, 1]]
    done("teach", tmp_path / "m", world.one, *SMALL, "--replay", "none")
    groups = group_similar(TaughtIndex(model_of(tmp_path / "m")), features_of(tmp_path / "m", files))
    assert sorted(row for rows in groups for row in rows) == list(range(5))


def test_too_many_photos_get_a_sentence(world: World) -> None:
    index = TaughtIndex(model_of(world.base))
    with pytest.raises(InvalidValue, match="At most 5,000 photos can be grouped together, got 5,001"):
        group_similar(index, torch.zeros(MAX_PHOTOS + 1, 2))


def test_the_unknown_come_first_then_the_closest_calls() -> None:
    probabilities = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.5, 0.0], [0.99, 0.01, 0.0], [0.4, 0.3, 0.3]])
    known = torch.tensor([True, True, False, False])
    doubt = doubts(probabilities, known)
    assert doubt.argsort(descending=True).tolist() == [3, 2, 1, 0]
    ranked = rank_by_informativeness(doubt, known, [[0], [1], [2], [3]])
    assert [r.row for r in ranked] == [3, 2, 1, 0]
    assert [r.reason for r in ranked][1:] == [
        "It looks like nothing that was taught.",
        "Two classes fit it almost equally well.",
        "The model is fairly sure of it.",
    ]
    assert doubts(torch.ones(2, 1), torch.tensor([True, False])).tolist() == [0.0, 1.0], "a model of one class"


def test_one_of_each_group_comes_before_the_second_of_any() -> None:
    doubt, known = (
        torch.tensor([1.9, 1.8, 1.7, 0.2, 1.5, 1.5]),
        torch.tensor([False, False, False, True, False, False]),
    )
    ranked = rank_by_informativeness(doubt, known, [[0, 1, 2], [4, 5], [3]])
    assert [r.row for r in ranked] == [0, 4, 3, 1, 5, 2] and [r.group for r in ranked] == [0, 1, 2, 0, 1, 0]
    assert ranked[0].reason == "It looks like nothing that was taught, and 2 other photos look like it."
    assert ranked[1].reason.endswith("and 1 other photo looks like it.")
    tie = rank_by_informativeness(torch.tensor([1.0, 1.0, 0.5]), torch.tensor([True] * 3), [[1, 2], [0]])
    assert [r.row for r in tie] == [1, 0, 2], "among equals the larger group comes first"
