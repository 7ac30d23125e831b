"""benchmarks/photos.py from photos to tables, on generated photos."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from triphase.models import build
from triphase.randomness import generator

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
try:
    import photo_rivals
    import photo_sets
    import photos
    from generated_photos import draw
    from photo_cells import Cell, Results
finally:
    sys.path.pop(0)

NAMES = ("Beef-Tomato", "Brick", "Cloth", "Vine-Tomato")
SMALL = ("--backbone", "small_cnn", "--sizes", "16", "--orders", "0", "--first", "2", "--then", "2")
LEARNERS = ("default", "quick", "lda", "logistic", "knn", "joint", "lda_f")


def write(folder: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        for part, start, n in (("train", 0, 5), ("test", 100, 2)):
            (folder / part / name).mkdir(parents=True)
            for i in range(start, start + n):
                draw(name, i).save(folder / part / name / f"{i}.jpg")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("photos") / "shop", NAMES)


@pytest.fixture(scope="module")
def finished(folder: Path) -> Path:
    """Results of every learner but thorough."""
    out = folder.with_name("results")
    photos.main(
        ["--photos", f"{folder}", "--out", f"{out}", "--per-class", "all", "--learners", ",".join(LEARNERS), *SMALL]
    )
    return out


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def test_every_learner_is_measured_on_all_test_photos(finished: Path) -> None:
    found = lines(finished)
    assert [line["cell"]["learner"] for line in found] == list(LEARNERS)
    for result in (line["result"] for line in found):
        assert set(result["by_class"]) == set(NAMES) and result["image_size"] == 16
        assert result["accuracy"] == pytest.approx(sum(result["by_class"].values()) / 4)
        assert 0 <= result["ece"] <= 1 and result["seconds"] > 0 and result["cpu_seconds"] > 0
    default, quick = found[0]["result"], found[1]["result"]
    assert [(lesson["photos"], lesson["classes"]) for lesson in default["lessons"]] == [(8, 2), (8, 2), (4, 4)]
    assert 0 < default["version_bytes"] < default["model_bytes"] and default["engine"] == "torch"
    assert len(quick["lessons"]) == 3
    assert not any((finished / "work").iterdir()), "models that were measured are removed"


def test_a_rerun_does_only_what_a_crash_has_cut_off(
    folder: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (finished / "results.jsonl").read_text()
    (tmp_path / "results.jsonl").write_text(text[: text.index('"knn"') + 20])
    words = ["--photos", str(folder), "--out", str(tmp_path), "--per-class", "all", *SMALL]
    photos.main([*words, "--learners", "default,lda,knn"])
    said = capsys.readouterr().err
    assert "[3/3]" in said and "[1/3]" not in said and "[2/3]" not in said
    (*_, again), (before,) = (
        Results(tmp_path).by_cell.items(),
        [line["result"] for line in lines(finished) if line["cell"]["learner"] == "knn"],
    )
    assert again[0].learner == "knn" and again[1]["by_class"] == before["by_class"]


def test_the_report_shows_what_was_measured(finished: Path, tmp_path: Path) -> None:
    photos.main(["report", str(finished), "--out", str(tmp_path / "photos.md")])
    text = (tmp_path / "photos.md").read_text()
    results = {line["cell"]["learner"]: line["result"] for line in lines(finished)}
    for learner, result in results.items():
        difference = 100 * (result["accuracy"] - results["default"]["accuracy"])
        entry = f"| {learner} | small_cnn | 16 | {100 * result['accuracy']:.1f}"
        assert f"{entry} |" in text if learner == "default" else f"{entry} ({difference:+.1f} [" in text
    assert f"| {results['lda']['ece']:.3f} |" in text and lines(finished)[0]["about"]["commit"] in text
    assert "python benchmarks/photos.py --photos shop --out results" in text


def test_a_report_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="No cell is finished"):
        photos.main(["report", str(tmp_path), "--out", str(tmp_path / "photos.md")])


def test_strangers_are_near_others_or_far(folder: Path, tmp_path: Path) -> None:
    far, out = write(tmp_path / "far", ("Daisy",)), tmp_path / "out"
    words = ["--photos", str(folder), "--far", str(far), "--out", str(out), "--per-class", "all", *SMALL]
    photos.main([*words, "--learners", "default,lda", "--unknown", "--no-more-photos"])
    (line,) = lines(out)
    unknown = line["result"]["unknown"]
    assert {name: group["photos"] for name, group in unknown["groups"].items()} == {
        "near": 2,
        "others": 2,
        "far": 2,
    }
    assert all(
        0 <= group["auroc"] <= 1 and len(group["auroc_of_scores"]) == 2 for group in unknown["groups"].values()
    )
    assert unknown["review"]["photos"] == 1 and unknown["review"]["strangers_in_all"] == 4
    assert len(line["result"]["lessons"]) == 1 and set(line["result"]["by_class"]) == {"Beef-Tomato", "Cloth"}
    photos.main(["report", str(out), "--out", str(tmp_path / "photos.md")])
    assert f"{unknown['together']['auroc']:.3f}" in (tmp_path / "photos.md").read_text()


def test_thorough_goes_on_from_the_model_of_the_default(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[Path] = []
    module: Any = ModuleType("triphase.app.consolidate")
    module.__spec__ = ModuleSpec(module.__name__, None)
    module.consolidate = lambda path, minutes: given.append(path)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    words = ["--photos", str(folder), "--out", str(tmp_path), "--per-class", "4", *SMALL, "--no-more-photos"]
    photos.main([*words, "--learners", "default,thorough"])
    default, thorough = (line["result"] for line in lines(tmp_path))
    assert len(given) == 1 and capsys.readouterr().err.count("lesson 1 of") == 1
    assert thorough["lessons"] == default["lessons"] and thorough["by_class"] == default["by_class"]
    assert thorough["seconds"] > default["seconds"]


def test_halves_and_draws_of_photos(folder: Path) -> None:
    everything = photo_sets.read(folder)
    halves = [photo_sets.read(folder, half).names for half in ("A", "B")]
    assert halves == [["Beef-Tomato", "Cloth"], ["Brick", "Vine-Tomato"]]
    few, more, other = (photo_sets.draw(everything.train, n, seed) for n, seed in ((2, 0), (4, 0), (2, 1)))
    assert all(len(few[name]) == 2 and set(few[name]) < set(more[name]) for name in NAMES) and few != other
    assert photo_sets.read(folder, n_classes=1, n_test=1).test == {
        "Beef-Tomato": everything.test["Beef-Tomato"][:1]
    }


def test_lessons_teach_each_photo_once_and_old_classes_again_at_the_end(folder: Path) -> None:
    train = photo_sets.read(folder).train
    plan = photo_sets.lessons(train, 0, first=3, then=1, more=True)
    assert [len(lesson) for lesson in plan] == [3, 1, 4] and all(len(files) == 1 for files in plan[-1].values())
    taught = [file for lesson in plan for files in lesson.values() for file in files]
    assert sorted(taught) == sorted(file for files in train.values() for file in files)
    assert [len(lesson) for lesson in photo_sets.lessons(train, 0, first=9, then=1, more=False)] == [4]
    part, held_out = photo_sets.hold_out(train)
    assert all([*part[name], *held_out[name]] == train[name] and len(held_out[name]) == 1 for name in NAMES)


def test_a_class_without_test_photos_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, ("Brick", "Cloth"))
    for file in (tmp_path / "test" / "Cloth").iterdir():
        file.unlink()
    with pytest.raises(SystemExit, match="Cloth"):
        photos.main(["--photos", str(tmp_path), "--out", str(tmp_path / "out"), "--learners", "lda", *SMALL])


def test_a_rate_is_chosen_in_one_order_and_used_in_the_others(finished: Path) -> None:
    results = Results(finished)
    cell = next(cell for cell in results.by_cell if cell.learner == "joint")
    assert results.by_cell[cell]["chosen"] in photo_rivals.RATES
    assert results.chosen(replace(cell, order=7)) == results.by_cell[cell]["chosen"]
    assert results.chosen(replace(cell, order=7, per_class=3)) is None
    assert isinstance(cell, Cell)


def test_fine_tuning_fits_photos_that_can_be_told_apart() -> None:
    y = torch.arange(60) % 3
    model = build("small_cnn", 3, image_size=16)
    x = torch.rand(60, 3, 16, 16, generator=generator(0, "photos")) * 60 + 60.0 * y.view(-1, 1, 1, 1)
    z = model.encode(x).detach().permute(0, 2, 3, 1)
    trained = photo_rivals.fine_tuned(model, z.unsqueeze(1).expand(-1, 2, -1, -1, -1).half(), y, 0.1, seed=0)
    guess = trained.tail(z.permute(0, 3, 1, 2)).argmax(1)
    assert float((guess == y).float().mean()) > 0.9
