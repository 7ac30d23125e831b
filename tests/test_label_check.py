"""Photos whose label is probably wrong come first."""

import shutil
from pathlib import Path

import pytest

from lessons import SMALL, World, done, model_of
from triphase.app.label_check import leave_out, suspects
from triphase.app.taught_index import TaughtIndex
from triphase.data.sources.files import file_id
from triphase.learners.frozen import without


def swap(world: World) -> set[int]:
    """Put one photo of red among the green ones and one of blue among the red ones."""
    for colour, name, other in (("red", "4.png", "green"), ("blue", "7.png", "red")):
        shutil.move(world.one / colour / name, world.one / other / f"from_{colour}.png")
    return {file_id(world.one / "green" / "from_red.png"), file_id(world.one / "red" / "from_blue.png")}


@pytest.mark.parametrize("learner", ["anchored", "slda", "ncm"])
def test_swapped_photos_are_the_first_suspects(world: World, tmp_path: Path, learner: str) -> None:
    swapped = swap(world)
    done("teach", tmp_path / "m", world.one, *SMALL, "--learner", learner)
    model = model_of(tmp_path / "m")
    index = TaughtIndex(model)
    found = suspects(index, leave_out(index, model.learner.closed_form))
    assert {suspect.id for suspect in found[:2]} == swapped
    assert {(s.name, s.looks_like) for s in found[:2]} == {("green", "red"), ("red", "blue")}
    assert all(0 <= s.own < s.sure <= 1 for s in found)
    ratios = [s.own / s.sure for s in found]
    assert ratios == sorted(ratios)


def test_a_confirmed_label_is_not_listed_again_unless_it_changes(world: World, tmp_path: Path) -> None:
    swap(world)
    done("teach", tmp_path / "m", world.one, *SMALL)
    model = model_of(tmp_path / "m")
    index = TaughtIndex(model)
    left_out = leave_out(index, model.learner.closed_form)
    first = suspects(index, left_out)[0]
    assert first.id not in {s.id for s in suspects(index, left_out, {first.id: first.name})}
    assert first.id in {s.id for s in suspects(index, left_out, {first.id: first.looks_like})}


def test_every_photo_is_scored_without_itself(world: World) -> None:
    model = model_of(world.base)
    index, closed = TaughtIndex(model), model.learner.closed_form
    assert closed is not None
    left_out = leave_out(index, closed, folds=100)
    assert left_out.rows.tolist() == list(range(len(index)))
    row = int((~index.held_out).nonzero()[0])
    f, y = index.features[row : row + 1].float(), index.labels[row : row + 1]
    answer = int(without(closed, f, y).scores(f)[0, : len(index.names)].argmax())
    assert int(left_out.probabilities[row].argmax()) == answer, "a class of ten photos in a hundred folds"


def test_near_duplicates_do_not_vouch_for_each_other(world: World) -> None:
    model = model_of(world.base)
    index = TaughtIndex(model)
    red = index.names.index("red")
    index.hashes[index.labels == red] = 0  # one burst
    left_out = leave_out(index, model.learner.closed_form)
    trained = (index.labels == red) & ~index.held_out
    assert not set(trained.nonzero().view(-1).tolist()) & set(left_out.rows.tolist())


def test_nothing_is_doubted_without_closed_form_or_stored_photos(world: World, tmp_path: Path) -> None:
    for options in (("--learner", "tpc"), ("--replay", "none")):
        path = tmp_path / options[1]
        done("teach", path, world.one, *SMALL, *options)
        model = model_of(path)
        index = TaughtIndex(model)
        left_out = leave_out(index, model.learner.closed_form)
        assert len(left_out.rows) == 0 and suspects(index, left_out) == []
