"""The data folder: what is complete, what is missing, and what belongs to which dataset."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_folders import empty, found, look, photo, touch_core50, touch_imagenet
from triphase.data.sources.integrity import Count, DatasetInfo, Integrity
from triphase.errors import few


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(1, 3)), min_size=1), st.booleans())
def test_complete_means_that_every_count_is_right_and_nothing_is_wrong(
    numbers: list[tuple[int, int | None]], problem: bool
) -> None:
    counts = tuple(Count("things", n, expected) for n, expected in numbers)
    state = Integrity(DatasetInfo("", "", "", ""), counts, ("Oh.",) if problem else ()).state
    assert (state == "absent") == all(n == 0 for n, _ in numbers)
    if state != "absent":
        right = all(expected in (None, n) for n, expected in numbers)
        assert (state == "complete") == (right and not problem)


@given(st.lists(st.from_regex(r"[a-z0-9]+", fullmatch=True), max_size=12))
@settings(max_examples=50)
def test_a_few_names_account_for_all(names: list[str]) -> None:
    listed, _, more = few(names).partition(" and ")
    shown = listed.split(", ") if listed else []
    assert shown == names[: len(shown)]
    assert len(shown) + int(more.split()[0] if more else 0) == len(names)


@pytest.mark.parametrize(
    ("name", "archive"),
    [
        ("cifar100", "cifar-100-python.tar.gz"),
        ("core50", "core50_128x128.zip"),
        ("core50", "batches_filelists_NICv2.zip"),
    ],
)
def test_downloads_that_nobody_unpacked_are_pointed_out(tmp_path: Path, name: str, archive: str) -> None:
    empty(tmp_path / archive)
    dataset = look(tmp_path, name)
    assert dataset.state == "absent" and dataset.problems[0].startswith(f"Still packed: {archive};")


def test_published_datasets_are_not_taken_for_photos(tmp_path: Path) -> None:
    touch_imagenet(tmp_path)
    touch_core50(tmp_path, 1, 1, 3)
    assert look(tmp_path, "folder").state == "absent"
    photo(tmp_path / "cat" / "1.jpg")
    photo(tmp_path / "cat" / "2.jpg")
    mixed = look(tmp_path, "folder")
    assert found(mixed) == {"classes": 1, "photos in them": 2}
    assert mixed.problems == (
        "Other datasets lie beside them (s1, train, val); give photos a folder of their own.",
    )
