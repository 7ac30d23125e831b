"""A review belongs to one version, computes what it is asked for, and may be shared by threads."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lessons import World, content, done
from triphase.app.confirmed_labels import ConfirmedLabels
from triphase.app.review import Review
from triphase.app.store.versions import Store
from triphase.errors import BadData


def test_it_says_what_version_it_is_of_and_changes_nothing(world: World) -> None:
    before = content(world.base)
    review = Review(world.base)
    assert (review.version, review.names) == (1, ("blue", "green", "red"))
    assert [report.name for report in review.classes()] == ["blue", "green", "red"]
    assert all(report.taught == 10 and report.advice.endswith(".") for report in review.classes())
    review.suspects()
    assert content(world.base) == before


def test_what_is_called_right_is_not_asked_again_even_under_another_name(world: World, tmp_path: Path) -> None:
    shutil.move(world.one / "red" / "4.png", world.one / "green" / "from_red.png")
    done("teach", world.base, world.one, "--force")
    confirmed = ConfirmedLabels(tmp_path / "confirmed.json")
    review = Review(world.base)
    suspect = review.suspects(confirmed)[0]
    assert (suspect.name, suspect.looks_like) == ("green", "red")
    review.confirm(confirmed, [suspect.id, 12345])
    assert suspect.id not in {s.id for s in review.suspects(confirmed)}
    done("rename", world.base, "green", "emerald")
    later = Review(world.base, review)
    assert later.version == 3
    assert suspect.id in {s.id for s in later.suspects()} - {s.id for s in later.suspects(confirmed)}


def test_threads_get_the_same_answers(world: World) -> None:
    review = Review(world.base)
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: review.classes(), range(4)))
    assert all(report == reports[0] for report in reports)


def test_a_version_that_was_rewritten_needs_another_review(world: World) -> None:
    done("rename", world.base, "red", "rouge")
    review = Review(world.base)
    assert review.is_of(Store(world.base).version())
    done("forget", world.base, "blue", "--everywhere")
    assert review.version == Store(world.base).version().number and not review.is_of(Store(world.base).version())
    assert Review(world.base, review).names == ("green", "rouge")


def test_where_there_is_no_model_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="holds no model"):
        Review(tmp_path / "none")
