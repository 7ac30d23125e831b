"""What is done with a model that is taught: ask it, test it, rename, forget, take back, undo."""

import dataclasses
import json
import os
import re
import shutil
import unicodedata
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from lessons import SMALL, World, assert_same_state, content, done, exemplars, model_of, triphase, versions
from triphase import models
from triphase.app import predictor
from triphase.app.model import Model
from triphase.app.scan import scan
from triphase.app.store.versions import Store
from triphase.data.feature_cache import features
from triphase.errors import CorruptState
from triphase.learners import SLDA


def test_predict_names_a_class_or_says_unknown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = [world.test / "red" / "100.png", world.test / "blue" / "101.png"]
    answers = done("predict", world.base, *photos, "--json").document()["answers"]
    assert [(a["file"], a["best"]) for a in answers] == [(str(photos[0]), "red"), (str(photos[1]), "blue")]
    assert all(0.4 < a["probability"] <= 1 and a["label"] in (a["best"], "unknown") for a in answers)

    monkeypatch.setattr(predictor, "ood_scores", lambda logits, distances: np.full((len(logits), 2), np.inf))
    assert re.search(r"100\.png +red +[\d.]+ %\n", done("predict", world.base, photos[0]).out)
    monkeypatch.setattr(predictor, "ood_scores", lambda logits, distances: np.full((len(logits), 2), -1e30))
    assert re.search(
        r"100\.png +unknown +\(best guess: red, [\d.]+ %\)", done("predict", world.base, photos[0]).out
    )
    assert done("evaluate", world.base, world.one, "--json").document()["unknown_rate"] == 1


def test_evaluate_says_when_it_flatters(world: World) -> None:
    answer = done("evaluate", world.base, world.one)
    assert "The model was taught 30 of these photos" in answer.out
    assert re.search(r"Accuracy: [\d.]+ % on 30 photos\.", answer.out)
    stranger = triphase("evaluate", world.base, world.test)
    assert stranger.status == 1 and "never taught yellow" in stranger.err


def test_status_shows_the_accuracy_of_a_first_lesson(world: World, tmp_path: Path) -> None:
    lesson = done("teach", tmp_path / "new", world.one, *SMALL, "--json").document()["classes"]
    n = sum(line["exemplars"] for line in lesson)
    share = sum(line["exemplars"] * line["after"] for line in lesson) / n
    told = rf"accuracy +{100 * share:.1f} % on {n} held-out photos *\n"
    assert re.search(told, done("status", tmp_path / "new").out)
    document = done("status", tmp_path / "new", "--json").document()
    assert document["accuracy"] == pytest.approx(share) and document["accuracy_of"] == f"{n} held-out photos"
    done("forget", tmp_path / "new", "red")
    assert "not measured in this version" in done("status", tmp_path / "new").out
    document = done("status", tmp_path / "new", "--json").document()
    assert document["accuracy"] is None and document["accuracy_of"] is None
    done("undo", tmp_path / "new")
    assert re.search(told, done("status", tmp_path / "new").out)


def test_evaluate_refuses_a_class_that_it_was_never_taught_before_it_reads_any_photo(world: World) -> None:
    (world.test / "red" / "torn.jpg").write_bytes(b"no photo")
    answer = triphase("evaluate", world.base, world.test)
    assert answer.status == 1 and "Scanning" not in answer.err
    assert answer.err.endswith("it knows blue, green, red. Teach these photos, or leave them out.\n")


def test_people_read_tables(world: World) -> None:
    done("rename", world.base, "red", "[bold]red")
    for command in ("status", "history", "classes"):
        assert "[bold]red" in done(command, world.base).out
    assert re.search(r"1 +\d{4}-\d\d-\d\d \d\d:\d\d +taught blue, green, red +30", done("history", world.base).out)
    assert "in use" in done("history", world.base).out.splitlines()[-1]
    assert "30 photos in 1 lesson" in done("status", world.base).out


def test_every_document_says_of_which_model_it_is(world: World) -> None:
    model, photo = world.base, world.one / "red" / "1.png"
    for deed, *more in (
        ("teach", world.one, "--dry-run"),
        ("teach", world.one),
        ("predict", photo),
        ("evaluate", world.one),
        ("status",),
        ("history",),
        ("classes",),
        ("rename", "red", "rouge"),
        ("undo",),
        ("unteach", photo),
        ("forget", "red"),
    ):
        assert done(deed, model, *more, "--json").document()["model"] == str(model), deed


def test_a_file_that_a_writer_takes_away_meanwhile_does_not_disturb_status(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = done("status", world.base, "--json").document()["bytes"]
    vanished, real = next((world.base / "parts").iterdir()), Path.stat
    size = vanished.stat().st_size

    def stat(path: Path, **options: Any) -> os.stat_result:
        if path == vanished:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(Path, "is_file", lambda path: True)  # it was there a moment ago
    assert done("status", world.base, "--json").document()["bytes"] == whole - size


def test_undo_goes_back_bit_for_bit_as_often_as_there_are_versions(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.base, tmp_path / "first")
    done("rename", world.base, "red", "rot")
    shutil.copytree(world.base, tmp_path / "second")
    done("teach", world.base, world.two, "--force")
    answer = done("undo", world.base)
    assert "Back at version 2, published" in answer.out and "with 3 classes: blue, green, rot." in answer.out
    assert_same_state(world.base, tmp_path / "second")
    document = done("undo", world.base, "--json").document()
    assert document == {"model": str(world.base), "version": 1, "classes": ["blue", "green", "red"]}
    assert_same_state(world.base, tmp_path / "first")
    answer = triphase("undo", world.base)
    assert answer.status == 1 and "nothing to undo" in answer.err
    done("rename", world.base, "red", "rouge")
    assert done("status", world.base, "--json").document()["version"] == 4, "numbers are never reused"


def traces(model: Path, name: str) -> list[str]:
    """The files of a model in which a word occurs."""
    return [file for file, blob in content(model).items() if name.encode() in blob]


def assert_unknown(model: Path, gone: str, number: int | None = None) -> None:
    """Nothing of a class in a version: as many rows as classes, no more photos than those of the others."""
    state, version = Store(model).load(number)
    names = state["app"]["names"]
    assert gone not in names and f'"{gone}"' not in json.dumps(version.info)
    n = len(names)
    assert len(state["closed_form_statistics"]["counts"]) == len(state["closed_form_statistics"]["sums"]) == n
    assert len(state["head"]["weight"]) <= n
    assert set(state["memory"]["columns"]["y"].tolist()) <= set(range(n))
    assert set(state["memory"]["columns"]["id"].tolist()) <= set(state["taught"]["ids"].tolist())
    assert len(state["taught"]["ids"]) == version.info["taught"]


@pytest.mark.parametrize("quick", [False, True])
def test_a_lesson_may_push_the_last_exemplar_out_of_a_small_memory(
    world: World, tmp_path: Path, quick: bool
) -> None:
    small = ("--backbone", "small_cnn", "--image-size", "8", "--memory", "4")
    shutil.move(world.one / "blue", world.two)
    done("teach", tmp_path / "m", world.one, *small)
    before = Store(tmp_path / "m").current()
    outcome = done("teach", tmp_path / "m", world.two, *(["--quick"] if quick else []), "--json").document()
    after = Store(tmp_path / "m").current()
    assert before is not None and after is not None
    assert before.info["memory"]["exemplars"] > after.info["memory"]["exemplars"] == 0
    assert outcome["published"] and outcome["verdict"]["n"] == before.info["memory"]["exemplars"]


def test_forget_leaves_nothing_of_a_class_in_the_version_in_use(world: World) -> None:
    state, _ = Store(world.base).load()
    lost = state["taught"]["ids"][state["taught"]["labels"] == state["app"]["names"].index("red")]
    assert len(lost) == 10
    answer = done("forget", world.base, "red")
    assert (
        "have learned from its photos remains" in answer.out
        and "Older versions still contain the class" in answer.out
    )
    assert_unknown(world.base, "red")
    state, version = Store(world.base).load()
    held = torch.cat([state["taught"]["ids"], state["memory"]["columns"]["id"]])
    assert not torch.isin(lost, held).any() and len(state["taught"]["ids"]) == 20
    assert set(traces(world.base, '"red"')) & {f"versions/{version.number:06d}.json", "CURRENT"} == set()
    shutil.rmtree(world.one / "red")
    assert done("evaluate", world.base, world.one, "--json").document()["accuracy"] >= 0.9


def test_the_accuracy_of_more_is_not_told_of_what_is_left(world: World) -> None:
    def told() -> tuple[float | None, str]:
        return done("status", world.base, "--json").document()["accuracy"], done("status", world.base).out

    done("teach", world.base, world.two, "--force")
    accuracy, text = told()
    assert accuracy is not None and "on held-out photos of the classes known before" in text
    for deed in (("unteach", world.one / "red" / "1.png"), ("forget", "red"), ("forget", "red", "--everywhere")):
        done(deed[0], world.base, *deed[1:])
        accuracy, text = told()
        assert accuracy is None and "not measured in this version" in text
        if deed[-1] != "--everywhere":
            done("undo", world.base)
            assert told()[0] is not None
    done("teach", world.base, world.one, "--force")
    assert told()[0] is not None


def test_forget_everywhere_leaves_nothing_of_a_class_under_any_of_its_names(world: World) -> None:
    done("teach", world.base, world.two, "--quick", "--force")
    done("rename", world.base, "red", "scarlet")
    done("rename", world.base, "blue", "red")  # another class under a name that is free again
    answer = done("forget", world.base, "scarlet", "--everywhere")
    assert "is forgotten in all versions" in answer.out and "Older versions" not in answer.out
    assert traces(world.base, "scarlet") == []
    names = {number: Store(world.base).load(number)[1].info["classes"] for number in versions(world.base)}
    assert names == {
        1: ["blue", "green"],
        3: ["blue", "green", "yellow"],
        4: ["blue", "green", "yellow"],
        5: ["red", "green", "yellow"],
    }
    for number in versions(world.base):
        assert_unknown(world.base, "scarlet", number)
    for _ in range(3):
        done("undo", world.base)
    shutil.rmtree(world.test / "red")
    shutil.rmtree(world.test / "yellow")
    assert done("evaluate", world.base, world.test, "--json").document()["accuracy"] >= 0.9


def test_forget_everywhere_removes_versions_that_knew_nothing_else(world: World, tmp_path: Path) -> None:
    model, alone, both = tmp_path / "grown", tmp_path / "alone", tmp_path / "both"
    shutil.copytree(world.one / "red", alone / "vermilion")
    shutil.copytree(world.one / "blue", both / "blue")
    shutil.copytree(world.one / "green", both / "green")
    done("teach", model, alone, *SMALL)
    done("teach", model, both, "--force")
    done("forget", model, "vermilion", "--everywhere")
    assert traces(model, "vermilion") == [] and versions(model) == [2]
    assert_unknown(model, "vermilion", 2)
    answer = triphase("undo", model)
    assert answer.status == 1 and "no longer kept" in answer.err
    done("teach", model, world.two, "--force")
    assert versions(model) == [2, 3]


def test_forget_everywhere_never_removes_the_version_in_use(world: World, tmp_path: Path) -> None:
    model, alone = tmp_path / "single", tmp_path / "alone"
    shutil.copytree(world.one / "red", alone / "red")
    done("teach", model, alone, *SMALL)
    done("rename", model, "red", "vermilion")
    done("undo", model)
    before = content(model)
    answer = triphase("forget", model, "vermilion", "--everywhere")
    assert answer.status == 1 and "vermilion is called red now: give that name" in answer.err
    answer = triphase("forget", model, "red", "--everywhere")
    assert answer.status == 1 and "is the only class: to forget everything, delete" in answer.err
    assert content(model) == before


@pytest.mark.parametrize("learner", ["tpc", "slda", "ncm"])
def test_a_quick_lesson_that_is_not_possible_leaves_nothing_behind(
    learner: str, world: World, tmp_path: Path
) -> None:
    answer = triphase("teach", tmp_path / "new", world.one, *SMALL, "--quick", "--learner", learner)
    assert answer.status == 1 and "has one speed; --quick needs anchored" in answer.err
    assert not (tmp_path / "new").exists()


def test_forget_everywhere_also_cleans_a_history_whose_versions_are_gone(world: World) -> None:
    done("forget", world.base, "red")
    shutil.rmtree(world.two / "red")
    done("teach", world.base, world.two, "--force", "--keep", 1)
    assert "red" in (world.base / "history.jsonl").read_text()
    done("forget", world.base, "red", "--everywhere")
    assert "red" not in re.findall(r"[a-z]+", (world.base / "history.jsonl").read_text())


def test_a_class_is_looked_up_in_old_versions_without_reading_them(world: World) -> None:
    done("teach", world.base, world.two, "--force")
    store = Store(world.base)
    old = {part.sha256 for part in store.version(1).parts.values()}
    for lost in old - {part.sha256 for part in store.version().parts.values()}:
        (world.base / "parts" / f"{lost}.safetensors").unlink()
    answer = triphase("forget", world.base, "purple", "--everywhere")
    assert answer.status == 1 and "No class is called 'purple'" in answer.err


def test_photos_can_be_untaught_after_a_class_was_forgotten(world: World, tmp_path: Path) -> None:
    some = world.one / "green"
    for learner in ("slda", "anchored"):
        for replay in ("none", "latent"):
            model = tmp_path / f"{learner}-{replay}"
            done("teach", model, world.one, *SMALL, "--replay", replay, "--learner", learner)
            done("forget", model, "red")
            shutil.copytree(some, tmp_path / "some" / model.name / "green")
            for photo in sorted((tmp_path / "some" / model.name / "green").iterdir())[5:]:
                photo.unlink()
            done("unteach", model, tmp_path / "some" / model.name)
            closed = Model.from_state(Store(model).load()[0]).learner.closed_form
            assert isinstance(closed, SLDA)
            between = float((closed.means.square().sum(1) * closed.counts).sum())
            assert float(closed.products.trace()) >= between * (1 - 1e-9), "a spread is never negative"
            done("predict", model, some / "9.png")  # it hung once


def test_what_the_untouched_network_sees_in_exemplars_is_computed_once(world: World) -> None:
    def kept() -> dict[int, torch.Tensor]:
        part = Store(world.base).load()[0]["exemplars"]
        assert part["ids"].tolist() == exemplars(world.base).tolist()
        return dict(zip(part["ids"].tolist(), part["features"], strict=True))

    before = kept()
    with patch("triphase.app.model.features", wraps=features) as computed:
        done("teach", world.base, world.two, "--force")
    after = kept()
    fresh = after.keys() - before.keys()
    assert fresh and before.keys() & after.keys()
    assert len(fresh) in [len(call.args[1]) for call in computed.call_args_list]
    assert all(torch.equal(after[id_], before[id_]) for id_ in before.keys() & after.keys())
    model = Model.from_state(Store(world.base).load()[0])
    _, _, stored = model.exemplars()
    anew = model.closed_form_features(model.latents_of(stored)).half()
    assert torch.equal(torch.stack(list(after.values())), anew)
    red = {id_ for id_, label in model.taught.items() if model.names[label] == "red"}
    done("forget", world.base, "red")
    assert kept().keys() == after.keys() - red


def test_parts_that_do_not_belong_together_make_no_model(world: World) -> None:
    state, _ = Store(world.base).load()
    app, taught = state["app"], state["taught"]
    for wrong in (
        {"app": app | {"names": ["blue", "green"]}},
        {"app": app | {"names": ["blue", "green", "green"]}},
        {"app": app | {"names": [*app["names"], "pink"]}},
        {"app": app | {"exemplar_correct": app["exemplar_correct"][1:]}},
        {"taught": taught | {"labels": taught["labels"][1:]}},
        {"taught": taught | {"labels": taught["labels"] + 1}},
        {"head": {"weight": state["head"]["weight"][:, 1:]}},
        {"known": [0, 1]},
        {"exemplars": {name: part[1:] for name, part in state["exemplars"].items()}},
        {"exemplars": state["exemplars"] | {"features": state["exemplars"]["features"][1:]}},
    ):
        with pytest.raises(CorruptState):
            Model.from_state(state | wrong)


def test_forget_refuses_what_it_cannot_do(world: World) -> None:
    before = content(world.base)
    answer = triphase("forget", world.base, "pink")
    assert answer.status == 1 and "No class is called 'pink'; there are 'blue', 'green', 'red'." in answer.err
    assert content(world.base) == before
    done("forget", world.base, "red")
    done("forget", world.base, "blue")
    answer = triphase("forget", world.base, "green", "--everywhere")
    assert answer.status == 1 and "is the only class" in answer.err


def test_a_model_that_stores_no_sample_still_knows_fresh_photos_of_its_classes(
    world: World, tmp_path: Path
) -> None:
    shutil.rmtree(world.test / "yellow")
    for learner in ("anchored", "slda"):
        done("teach", tmp_path / learner, world.one, *SMALL, "--replay", "none", "--learner", learner)
        document = done("evaluate", tmp_path / learner, world.test, "--json").document()
        assert document["taught"] == 0 and document["unknown_rate"] <= 0.5  # it was 1 once
    assert done("status", tmp_path / "slda", "--json").document()["unknown"]
    answer = done("forget", tmp_path / "slda", "red")  # nothing is left to judge by until the next lesson
    assert 'From now on, no answer is "unknown" until more photos are taught.' in answer.out
    assert 'no answer is "unknown"' in done("status", tmp_path / "slda").out
    shutil.rmtree(world.test / "red")
    assert done("evaluate", tmp_path / "slda", world.test, "--json").document()["unknown_rate"] == 0


def test_unteach_forgets_a_class_of_which_only_photos_for_measuring_are_left(world: World, tmp_path: Path) -> None:
    apart = set(Store(world.base).load()[0]["taught"]["held_out"].tolist())
    photos = scan(world.one, 8)
    for file, id_ in zip(photos.paths, photos.ids.tolist(), strict=True):
        if file.parent.name == "red" and id_ not in apart:
            (tmp_path / "wrong" / "red").mkdir(parents=True, exist_ok=True)
            shutil.copy(file, tmp_path / "wrong" / "red")
    said = " ".join(done("unteach", world.base, tmp_path / "wrong").out.split())
    assert "red has no photo left that it was learned from, so the class is forgotten" in said
    assert done("status", world.base, "--json").document()["classes"] == ["blue", "green"]
    again = done("teach", world.base, world.one, "--json").document()
    assert again["learned"] == 10 and again["known_already"] == 20


def test_all_but_the_photos_for_measuring_cannot_be_untaught(world: World, tmp_path: Path) -> None:
    apart = set(Store(world.base).load()[0]["taught"]["held_out"].tolist())
    photos = scan(world.one, 8)
    for file, id_ in zip(photos.paths, photos.ids.tolist(), strict=True):
        if id_ in apart:
            file.unlink()
    answer = triphase("unteach", world.base, world.one)
    assert answer.status == 1 and "all the photos that it was taught" in answer.err


def test_unteach_also_thins_the_aggregates_of_a_model_that_stores_no_sample(world: World, tmp_path: Path) -> None:
    model, some = tmp_path / "new", tmp_path / "some"
    done("teach", model, world.one, *SMALL, "--replay", "none")
    before = Model.from_state(Store(model).load()[0]).calibration.moments
    photos = sorted((world.one / "red").iterdir())[:3]
    (some / "red").mkdir(parents=True)
    for photo in photos:
        shutil.copy(photo, some / "red")
    done("unteach", model, some)
    after = Model.from_state(Store(model).load()[0])
    red = after.names.index("red")
    for was, now in zip(before, after.calibration.moments, strict=True):
        gone = was.n - now.n
        assert gone[red] == 3 and gone.sum() == 3
        torch.testing.assert_close(now.mean, was.mean)


@pytest.mark.parametrize("command", [("forget", "red"), ("unteach", "one/red/1.png")])
def test_what_is_taken_back_is_not_kept_by_an_interrupted_lesson(
    command: tuple[str, str], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.one.parent)
    (world.base / "work").mkdir()
    (world.base / "work" / "lesson.json").write_text("{}")
    done(command[0], world.base, command[1])
    assert not (world.base / "work").exists()


def test_a_renamed_class_keeps_what_it_learned(world: World) -> None:
    answer = done("rename", world.base, "red", "rouge")
    assert "Renamed red to rouge in version 2." in answer.out
    (world.test / "red").rename(world.test / "rouge")
    shutil.rmtree(world.test / "yellow")
    assert done("evaluate", world.base, world.test, "--json").document()["per_class"]["rouge"] >= 0.8
    for new, part in (
        ("blue", "There is a class 'blue' already"),
        ("Unknown", "cannot be called"),
        ("ｕｎｋｎｏｗｎ", "unlike any class"),
        (" ", "cannot"),
        (os.fsdecode(b"\xff"), "not valid UTF-8"),
        ("a/b", "no folder can have a /"),
    ):
        refused = triphase("rename", world.base, "green", new)
        assert refused.status == 1 and part in refused.err


@pytest.mark.parametrize("command", [("rename", "café", "tea"), ("forget", "café")])
def test_a_class_is_found_however_its_accents_are_written(command: tuple[str, ...], world: World) -> None:
    done("rename", world.base, "red", unicodedata.normalize("NFD", "café"))
    deed, *names = (unicodedata.normalize("NFD", word) for word in command)
    classes = done(deed, world.base, *names, "--json").document()["classes"]
    assert classes == ["blue", "green", *names[1:]]


def test_photos_are_taken_back_by_their_content(world: World) -> None:
    wrong = world.one.parent / "wrong" / "whatever"
    wrong.mkdir(parents=True)
    for number in (1, 2, 3):
        shutil.copy(world.one / "red" / f"{number}.png", wrong / f"copy{number}.png")
    document = done("unteach", world.base, wrong.parent, "--json").document()
    assert (document["version"], document["images"]) == (2, 3)
    counts = {c["name"]: c["taught"] for c in done("classes", world.base, "--json").document()["classes"]}
    assert counts == {"blue": 10, "green": 10, "red": 7}
    state, _ = Store(world.base).load()
    assert len(state["memory"]["columns"]["id"]) == 27
    held_out = int((state["memory"]["columns"]["split"] == 1).sum())
    assert float(state["closed_form_statistics"]["counts"].sum()) == 27 - held_out, "exemplars are in no statistic"
    again = triphase("unteach", world.base, wrong)  # also a folder without class folders
    assert again.status == 1 and "nothing to take back" in again.err
    single, torn = world.one / "blue" / "1.png", wrong / "torn.png"
    torn.write_bytes(b"\xff\xd8\xff and no more")  # never taught: it matters to nobody
    assert done("unteach", world.base, single, torn, single, "--json").document()["images"] == 1
    done("undo", world.base)
    everything = triphase("unteach", world.base, world.one)
    assert everything.status == 1 and "all the photos that it was taught" in everything.err
    assert done("teach", world.base, world.one, "--force", "--json").document()["learned"] == 3


def test_unteach_lists_what_it_skipped(world: World, tmp_path: Path) -> None:
    empty = tmp_path / "torn" / "empty.png"
    empty.parent.mkdir()
    empty.write_bytes(b"")
    words = ("unteach", world.base, empty.parent, world.one / "red" / "1.png")
    refused = triphase(*words)
    assert refused.status == 1 and str(empty) in refused.err and "--skip-bad" in refused.err
    assert f"Skipped 1 photo:\n  {empty} is an empty file" in done(*words, "--skip-bad").out
    done("undo", world.base)
    document = done(*words, "--skip-bad", "--json").document()
    assert document["images"] == 1 and len(document["skipped"]) == 1 and str(empty) in document["skipped"][0]


def test_a_model_keeps_its_image_size_when_the_default_becomes_another(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "m"
    done("teach", model, world.one, "--backbone", "small_cnn", "--memory", "120")
    small = models.BACKBONES["small_cnn"]
    larger = {"small_cnn": dataclasses.replace(small, photo_size=2 * small.photo_size)}
    monkeypatch.setattr(models, "BACKBONES", {**models.BACKBONES, **larger})
    done("unteach", model, world.one / "red" / "1.png")
    done("teach", model, world.two, "--force")
    assert Store(model).version().info["image_size"] == small.photo_size == model_of(model).size
