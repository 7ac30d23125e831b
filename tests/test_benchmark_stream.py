"""The stream of a benchmark: classes, images, class order and evaluation points."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from triphase.bench.benchmarks import BENCHMARKS, find
from triphase.bench.datasets import class_order, load
from triphase.bench.run.benchmark_stream import make_stream
from triphase.bench.run.options import RunOptions
from triphase.errors import InvalidValue

digits = find("digits-5")


@pytest.mark.parametrize(
    ("name", "n_seen"), [("digits:5/2-2", [2, 4, 6, 8, 10]), ("digits:3/4-3", [4, 7, 10]), ("digits:2/1-1", [1, 2])]
)
def test_experiences_bring_as_many_classes_as_the_name_says(name: str, n_seen: list[int]) -> None:
    stream = make_stream(find(name), RunOptions(order=1), Path())
    assert list(stream.n_seen) == n_seen and stream.n_classes == n_seen[-1] == len(stream.names)
    known = 0
    for experience, seen in zip(stream.experiences, n_seen, strict=True):
        assert experience.classes == tuple(range(known, seen))
        known = seen
    assert set(stream.test.labels.tolist()) == set(range(known))


def test_a_class_order_decides_who_comes_first() -> None:
    stream = make_stream(digits, RunOptions(order=3), Path())
    order = class_order("digits", 10, 3)
    pairs = [{str(order[i]), str(order[i + 1])} for i in range(0, 10, 2)]
    assert [{stream.names[c] for c in e.classes} for e in stream.experiences] == pairs


@pytest.mark.parametrize(
    ("every", "points"), [(None, (1, 2, 3, 4, 5)), (2, (1, 3, 5)), (3, (1, 4, 5)), (9, (1, 5))]
)
def test_evaluation_may_be_seldom_but_never_misses_the_end(every: int | None, points: tuple[int, ...]) -> None:
    assert make_stream(BENCHMARKS["digits-5"], RunOptions(evaluate_every=every), Path()).evaluate_after == points


def test_evaluation_may_be_seldom_with_repetition() -> None:
    stream = make_stream(find("digits:nic-31/2-1"), RunOptions(evaluate_every=14), Path())
    assert stream.evaluate_after == (1, 15, 29, 31)


def test_per_class_takes_a_subset_for_training_alone() -> None:
    full = make_stream(digits, RunOptions(), Path())
    some = make_stream(digits, RunOptions(per_class=7), Path())
    counts = Counter(label for e in some.experiences for label in e.images.labels.tolist())
    assert set(counts.values()) == {7}
    assert len(some.test) == len(full.test) == 450
    assert some.fingerprint != full.fingerprint


@pytest.mark.parametrize("cut", [{"per_class": 5}, {"classes": "0-9"}])
def test_a_published_list_of_images_cannot_be_cut(cut: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="core50-nicv2-391 is a published list of images: leave out --"):
        make_stream(find("core50-nicv2-391"), RunOptions(**cut), Path())


@pytest.mark.parametrize("name", ["digits:3/2-1", "digits:nic-7/2-1"])
def test_classes_leave_out_the_others_in_training_and_test(name: str) -> None:
    some = make_stream(find(name), RunOptions(order=1, classes="3,6-8"), Path())
    order = [str(c) for c in class_order("digits", 10, 1) if c in {3, 6, 7, 8}]
    assert some.names == (*sorted(order[:2]), *order[2:]) and some.n_classes == 4
    train, test, _ = load("digits", Path(), 8, skip_bad=False)
    for parts, source in (([e.images for e in some.experiences], train), ([some.test], test)):
        found = [(int(i), some.names[y]) for part in parts for i, y in zip(part.ids, part.labels, strict=True)]
        every = zip(source.ids.tolist(), source.labels.tolist(), strict=True)
        assert sorted(found) == sorted((i, str(y)) for i, y in every if y in {3, 6, 7, 8})


def test_classes_beyond_those_of_the_dataset_are_refused() -> None:
    with pytest.raises(InvalidValue, match="--classes names class 10, but the dataset has 0 to 9"):
        make_stream(find("digits:2/1-1"), RunOptions(classes="9-12"), Path())
    with pytest.raises(InvalidValue, match="digits-5 needs 10 classes, but --classes leaves 3"):
        make_stream(digits, RunOptions(classes="0-2"), Path())


def test_an_incremental_head_does_not_know_how_many_classes_will_come() -> None:
    assert make_stream(digits, RunOptions(head="incremental"), Path()).n_classes is None


@pytest.mark.parametrize(
    ("name", "n"), [("digits:nic-31/2-1", 31), ("digits:nic-13/5-3", 13), ("digits:nic-3/10-5", 3)]
)
@pytest.mark.parametrize("order", [0, 1])
def test_with_repetition_every_class_comes_back_with_new_images(name: str, n: int, order: int) -> None:
    benchmark = find(name)
    assert benchmark.shape is not None
    _, first, then = benchmark.shape
    stream = make_stream(benchmark, RunOptions(order=order), Path())
    assert len(stream.experiences) == n and stream.n_seen[0] == first and stream.n_seen[-1] == 10
    visits = Counter(label for e in stream.experiences for label in e.classes)
    places = first + then * (n - 1)
    assert min(visits.values()) >= 2 and max(visits.values()) <= -(-places // 10)
    assert all(len(e.classes) <= then for e in stream.experiences[1:])
    ids = [i for e in stream.experiences for i in e.images.ids.tolist()]
    assert len(ids) == len(set(ids)) == 1347, "every image is shown once"
    pieces = Counter((label, e.index) for e in stream.experiences for label in e.images.labels.tolist())
    for label in range(10):
        sizes = [size for (of, _), size in pieces.items() if of == label]
        assert max(sizes) - min(sizes) <= 1


def test_with_repetition_classes_enter_in_their_order_one_after_the_other() -> None:
    stream = make_stream(find("digits:nic-31/2-1"), RunOptions(order=3), Path())
    assert {*stream.names[:2]} == {str(label) for label in class_order("digits", 10, 3)[:2]}
    assert list(stream.names[2:]) == [str(label) for label in class_order("digits", 10, 3)[2:]]
    assert {b - a for a, b in zip(stream.n_seen, stream.n_seen[1:], strict=False)} == {0, 1}
    assert stream.evaluation == "all" and find("digits:nic-31/2-1").title == "Digits NIC 31/2-1"
    again = make_stream(find("digits:nic-31/2-1"), RunOptions(order=3), Path())
    assert again.fingerprint == stream.fingerprint
