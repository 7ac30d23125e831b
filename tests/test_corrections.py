"""Take back and move taught photos by id, from what is stored of them."""

import shutil
from pathlib import Path

import pytest
import torch

from lessons import SMALL, World, content, done, model_of, triphase
from triphase.app.corrections import move, take_back
from triphase.app.predictor import Predictor
from triphase.app.store.versions import Store
from triphase.data.decoding import decode
from triphase.data.memory import HELD_OUT
from triphase.data.sources.files import file_id
from triphase.errors import BadData, InvalidValue, PhotosNeeded


def split(model: Path, folder: Path) -> tuple[list[Path], list[Path]]:
    """Photos of a folder that were learned from, and those that were held out."""
    held_out = model_of(model).held_out
    files = sorted(folder.iterdir())
    return [f for f in files if file_id(f) not in held_out], [f for f in files if file_id(f) in held_out]


@pytest.mark.parametrize("replay", ["latent", "raw"])
def test_taking_back_by_id_is_unteaching_the_photo(world: World, tmp_path: Path, replay: str) -> None:
    model, other = tmp_path / "m", tmp_path / "n"
    done("teach", model, world.one, *SMALL, "--replay", replay)
    shutil.copytree(model, other)
    learned, held_out = split(model, world.one / "red")
    photos = [learned[0], learned[3], held_out[0]]
    done("unteach", other, *photos)
    version, n = take_back(model, [*(file_id(photo) for photo in photos), 12345])
    assert n == 3 and version.number == 2 and version.parent == 1 and version.info["accuracy"] is None
    found, expected = model_of(model), model_of(other)
    assert found.taught == expected.taught and found.held_out == expected.held_out
    assert found.memory is not None and expected.memory is not None
    assert torch.equal(found.memory["id"], expected.memory["id"])
    a, b = found.learner.closed_form, expected.learner.closed_form
    assert a is not None and b is not None and torch.equal(a.counts, b.counts)
    assert torch.allclose(
        found.state_dict()["closed_form_statistics"]["sums"],
        expected.state_dict()["closed_form_statistics"]["sums"],
        rtol=1e-3,
        atol=1e-2,
    )
    assert Store(model).history()[-1]["event"] == "untaught"
    done("undo", model)
    assert len(model_of(model).taught) == 30


def test_a_moved_photo_is_counted_replayed_and_measured_in_its_new_class(world: World, tmp_path: Path) -> None:
    """As if it had been taught there, apart from rounding and from what TPC will learn in the next lesson."""
    shutil.move(world.one / "red" / "4.png", world.one / "green" / "from_red.png")
    model = tmp_path / "m"
    done("teach", model, world.one, *SMALL)
    photo = world.one / "green" / "from_red.png"
    learned, held_out = split(model, world.one / "green")
    ids = [file_id(photo), file_id(next(f for f in held_out + learned if f != photo))]
    before = model_of(model)
    was_held_out = {id_ for id_ in ids if id_ in before.held_out}
    version, n = move(model, [*ids, 12345], "red")
    assert n == 2 and version.number == 2
    after = model_of(model)
    red, green = after.names.index("red"), after.names.index("green")
    assert all(after.taught[id_] == red for id_ in ids)
    assert {id_ for id_ in ids if id_ in after.held_out} == was_held_out
    assert after.memory is not None and before.memory is not None
    moved = torch.isin(after.memory["id"], torch.tensor(ids))
    assert after.memory["y"][moved].tolist() == [red, red]
    assert torch.equal(after.memory["split"] == HELD_OUT, before.memory["split"] == HELD_OUT)
    counts = after.learner.closed_form, before.learner.closed_form
    assert counts[0] is not None and counts[1] is not None
    change = (counts[0].counts - counts[1].counts).tolist()
    n_counted = len(ids) - len(was_held_out)
    assert change[red] == n_counted and change[green] == -n_counted
    event = Store(model).history()[-1]
    assert (event["event"], event["images"], event["classes"]) == ("moved", 2, {"red": 2})
    assert "moved photos to red" in done("history", model).out
    assert len(after.exemplar_correct) == len(before.exemplar_correct)


def test_sums_of_a_moved_photo_move_with_it(world: World) -> None:
    learned, _ = split(world.base, world.one / "red")
    before = model_of(world.base)
    closed = before.learner.closed_form
    assert closed is not None
    pixels = torch.stack([decode(learned[0], before.size)])
    f = Predictor.open(world.base).features(pixels)[0].double()
    sums = before.state_dict()["closed_form_statistics"]["sums"]
    move(world.base, [file_id(learned[0])], "blue")
    change = model_of(world.base).state_dict()["closed_form_statistics"]["sums"] - sums
    red, blue = before.names.index("red"), before.names.index("blue")
    assert torch.allclose(change[blue], f, rtol=1e-2, atol=1e-2)
    assert torch.allclose(change[red], -change[blue])


def test_a_class_that_loses_all_its_photos_is_forgotten(world: World) -> None:
    ids = [file_id(photo) for photo in (world.one / "green").iterdir()]
    version, n = move(world.base, ids, "red")
    assert n == 10 and version.info["classes"] == ["blue", "red"]
    model = model_of(world.base)
    assert sorted(set(model.taught.values())) == [0, 1] and model.counts()[1]["taught"] == 20
    version, n = take_back(world.base, [id_ for id_, label in model.taught.items() if label == 0])
    assert version.info["classes"] == ["red"]
    with pytest.raises(InvalidValue, match="all the photos"):
        take_back(world.base, list(model_of(world.base).taught))


def test_where_nothing_is_stored_the_photos_are_asked_for(world: World, tmp_path: Path) -> None:
    path = tmp_path / "m"
    done("teach", path, world.one, "--backbone", "small_cnn", "--image-size", "8", "--memory", "12")
    model, before = model_of(path), content(path)
    assert model.memory is not None
    stored = set(model.memory["id"].tolist())
    learned = [
        id_ for id_, label in model.taught.items() if id_ not in model.held_out and model.names[label] != "red"
    ]
    lost, kept = ([id_ for id_ in learned if (id_ in stored) == found] for found in (False, True))
    with pytest.raises(PhotosNeeded, match="Nothing is stored of 2 of these 3 photos: give the photos") as error:
        take_back(path, [*lost[:2], kept[0]])
    assert error.value.ids == tuple(lost[:2])
    with pytest.raises(PhotosNeeded, match="Nothing is stored of 1 of these 2 photos: teach the photos.*as red"):
        move(path, [kept[0], lost[0]], "red")
    assert content(path) == before


def test_a_model_that_stores_nothing_asks_for_the_photos(world: World, tmp_path: Path) -> None:
    model = tmp_path / "m"
    done("teach", model, world.one, *SMALL, "--replay", "none")
    with pytest.raises(PhotosNeeded, match="Nothing is stored of 1 of these 1 photos"):
        take_back(model, [file_id(world.one / "red" / "1.png")])


def test_what_cannot_be_corrected_gets_a_sentence_and_changes_nothing(world: World) -> None:
    red = file_id(world.one / "red" / "1.png")
    before = content(world.base)
    with pytest.raises(BadData, match="None of these photos was taught"):
        take_back(world.base, [1, 2])
    with pytest.raises(InvalidValue, match="No class is called 'pink'; there are 'blue', 'green', 'red'"):
        move(world.base, [red], "pink")
    with pytest.raises(InvalidValue, match="in the class red already"):
        move(world.base, [red], "red")
    assert content(world.base) == before


def test_a_later_lesson_and_forgetting_everywhere_know_of_the_move(world: World) -> None:
    move(world.base, [file_id(world.one / "red" / "1.png")], "green")
    again = triphase("teach", world.base, world.one, "--dry-run", "--json").document()
    assert again["corrected"] == 1, "in its folder it is still red"
    done("forget", world.base, "green", "--everywhere")
    assert all("green" not in str(event) for event in Store(world.base).history())
    assert "moved photos to ..." in done("history", world.base).out
