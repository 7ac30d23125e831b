"""Streams: classes renamed in order of appearance, every image where it belongs, and a fingerprint to trust."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from numbered_images import dataset, everything, images, pixels
from triphase.data.images import Images, concatenate
from triphase.data.streams import (
    Experience,
    Stream,
    class_incremental,
    joint,
    random_class_order,
    stream,
    with_repetition,
)
from triphase.errors import BadData, InvalidValue

NAMES = [f"class {c}" for c in range(20)]
lessons_of_labels = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=6)


def taught(s: Stream) -> list[int]:
    """The ids of a stream, lesson by lesson."""
    return [i for e in s.experiences for i in e.images.ids.tolist()]


# stream


@given(lessons_of_labels)
def test_classes_are_renamed_to_their_order_of_first_appearance(lessons: list[list[int]]) -> None:
    parts = [images(labels, first_id=100 * i) for i, labels in enumerate(lessons)]
    test = images(list(range(10)), first_id=5000)
    s = stream(parts, test, NAMES)
    order: list[int] = []
    for labels in lessons:
        order += sorted(set(labels) - set(order))
    assert s.names == tuple(NAMES[c] for c in order)
    seen: set[int] = set()
    for number, (experience, part, labels) in enumerate(zip(s.experiences, parts, lessons, strict=True), start=1):
        assert experience.index == number
        assert [order[c] for c in experience.images.labels.tolist()] == labels
        assert experience.classes == tuple(sorted({order.index(c) for c in labels}))
        assert torch.equal(experience.images.ids, part.ids)
        assert torch.equal(everything(experience.images), pixels(part.ids))
        seen |= set(experience.classes)
        assert seen == set(range(len(seen)))  # so that a growing head only appends rows
        assert s.n_seen[number - 1] == len(seen)
    assert sorted(s.test.labels.tolist()) == list(range(len(order)))  # classes never taught are not tested
    assert [order[c] for c in s.test.labels.tolist()] == (s.test.ids - 5000).tolist()


@given(lessons_of_labels)
def test_evaluation_on_all_classes_keeps_those_never_taught(lessons: list[list[int]]) -> None:
    test = images(list(range(10)))
    s = stream([images(labels) for labels in lessons], test, NAMES, evaluation="all")
    assert len(s.test) == len(test) and len(s.names) == len(set(s.names)) == 10
    assert [s.names[c] for c in s.test.labels.tolist()] == NAMES[:10]
    n = s.n_seen[-1]
    assert s.names[:n] == stream([images(labels) for labels in lessons], test, NAMES).names


def test_no_class_is_made_of_labels_below_zero() -> None:
    some = Images.from_array(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.tensor([4, 4, -1]), torch.arange(3))
    made = stream([some], some, NAMES, evaluation="all")
    assert made.names == ("class 4",) and made.test.labels.tolist() == [0, 0]
    with pytest.raises(BadData, match="Experience 1 has the label -2: labels count from 0"):
        stream([some.select(torch.arange(3), torch.tensor([4, -2, 4]))], some, NAMES)
    below = some.select(torch.arange(3), torch.tensor([4, -2, 4]))
    assert stream([some], below, NAMES).test.labels.tolist() == [0, 0]


def test_renaming_leaves_the_given_images_alone() -> None:
    part = images([7, 3])
    stream([part], part, NAMES)
    assert part.labels.tolist() == [7, 3]


def test_empty_experience_is_refused_by_its_number() -> None:
    parts = [images([0]) for _ in range(6)] + [images([])]
    with pytest.raises(BadData, match=r"^Experience 7 has no images; drop it from the stream\.$"):
        stream(parts, images([0]), NAMES)


def test_stream_without_experiences_is_refused() -> None:
    with pytest.raises(BadData, match="at least one experience"):
        stream([], images([0]), NAMES)


def test_evaluation_points_default_to_every_experience() -> None:
    parts = [images([0]), images([1]), images([2])]
    assert stream(parts, images([0]), NAMES).evaluate_after == (1, 2, 3)
    assert stream(parts, images([0]), NAMES, evaluate_after=[1, 3]).evaluate_after == (1, 3)


# fingerprint


def two_lessons() -> Stream:
    return stream([images([4, 4, 2], 0), images([2, 5], 10)], images([2, 4, 5, 5], 50), NAMES, n_classes=3)


def relabelled(s: Stream) -> Stream:
    first = s.experiences[0]
    rows = torch.arange(len(first.images))
    return replace(
        s, experiences=(Experience(1, first.images.select(rows, first.images.labels.flip(0))), *s.experiences[1:])
    )


def reordered(s: Stream) -> Stream:
    first = s.experiences[0]
    return replace(s, experiences=(Experience(1, first.images.select(torch.tensor([1, 0, 2]))), *s.experiences[1:]))


def with_other_ids(s: Stream) -> Stream:
    return stream([images([4, 4, 2], 0), images([2, 5], 11)], images([2, 4, 5, 5], 50), NAMES, n_classes=3)


def with_other_test(s: Stream) -> Stream:
    return replace(s, test=s.test.select(torch.arange(3)))


def test_fingerprint_is_equal_for_equal_streams() -> None:
    assert two_lessons().fingerprint == two_lessons().fingerprint


@pytest.mark.parametrize(
    "change",
    [
        relabelled,
        reordered,
        with_other_ids,
        with_other_test,
        lambda s: replace(s, names=("a", "b", "c")),
        lambda s: replace(s, n_classes=None),
        lambda s: replace(s, evaluation="all"),
        lambda s: replace(s, evaluate_after=(2,)),
        lambda s: replace(s, experiences=s.experiences[:1], evaluate_after=(1,)),
        lambda s: replace(s, experiences=s.experiences[::-1]),
    ],
)
def test_fingerprint_tells_what_changed(change: Callable[[Stream], Stream]) -> None:
    assert change(two_lessons()).fingerprint != two_lessons().fingerprint


def test_fingerprint_sees_where_one_experience_ends() -> None:
    """Label and id columns follow each other in the digest; their lengths must, too."""
    zeros = torch.zeros(6, dtype=torch.long)

    def split(sizes: list[int]) -> Stream:
        parts = [Images.from_array(pixels(zeros[:n]), zeros[:n], zeros[:n]) for n in sizes]
        return Stream(tuple(Experience(i, p) for i, p in enumerate(parts, 1)), images([0]), ("a",))

    assert split([2, 1]).fingerprint != split([1, 2]).fingerprint


# class_incremental


@given(st.integers(1, 10), st.integers(1, 4), st.integers(0, 5), st.booleans())
def test_class_incremental_brings_b_classes_then_c_each(first: int, then: int, later: int, known: bool) -> None:
    assume(first + later * then <= 10)
    order = random_class_order(10, 3)
    train, test = dataset(), dataset(each=2)
    s = class_incremental(
        train,
        test,
        NAMES,
        first=first,
        then=then,
        order=order,
        n_experiences=1 + later,
        n_classes_known=known,
    )
    n = first + later * then
    assert [len(e.classes) for e in s.experiences] == [first] + [then] * later
    assert s.n_seen == tuple(first + i * then for i in range(later + 1))
    assert s.n_classes == (n if known else None)
    assert set(s.names) == {NAMES[c] for c in order[:n]}
    assert set(s.names[:first]) == {NAMES[c] for c in order[:first]}
    assert sorted(taught(s)) == torch.isin(train.labels, torch.tensor(order[:n])).nonzero().view(-1).tolist()
    assert len(s.test) == 2 * n


def test_class_incremental_takes_all_classes_in_their_own_order_unless_told_otherwise() -> None:
    s = class_incremental(dataset(), dataset(), NAMES, first=4, then=2)
    assert [len(e.classes) for e in s.experiences] == [4, 2, 2, 2] and s.names == tuple(NAMES[:10])


@pytest.mark.parametrize(
    ("first", "then", "n", "words"),
    [
        (5, 2, 4, "4/5-2 needs 11 classes, but the dataset has 10"),
        (4, 4, None, "3/4-4 needs 12 classes, but the dataset has 10"),
        (11, 1, None, "1/11-1 needs 11 classes, but the dataset has 10"),
        (5, 5, 3, "3/5-5 needs 15 classes, but the dataset has 10"),
        (0, 1, None, "at least 1 class, got 0 first"),
        (1, 0, None, "at least 1 class, got 1 first and 0 after"),
        (1, 1, 0, "at least 1 experience, got 0"),
        (1, 1, -2, "at least 1 experience, got -2"),
    ],
)
def test_class_incremental_refuses_what_the_classes_do_not_allow(
    first: int, then: int, n: int | None, words: str
) -> None:
    with pytest.raises(InvalidValue, match=words):
        class_incremental(dataset(), dataset(), NAMES, first=first, then=then, n_experiences=n)


def test_class_order_that_names_a_class_twice_is_refused() -> None:
    with pytest.raises(InvalidValue, match="names a class twice"):
        class_incremental(dataset(), dataset(), NAMES, first=1, then=1, order=[0, 1, 0])


# with_repetition


@given(st.integers(1, 10), st.integers(1, 10), st.integers(1, 30), st.integers(0, 5))
def test_repetition_shows_every_image_once_and_every_class_again(
    first: int, per_experience: int, later: int, seed: int
) -> None:
    assume(20 <= first + per_experience * later <= 190)
    train = dataset(each=20)
    s = with_repetition(
        train,
        dataset(),
        NAMES,
        n_experiences=1 + later,
        first=first,
        per_experience=per_experience,
        seed=seed,
    )
    assert sorted(taught(s)) == list(range(len(train)))  # all of it, none twice
    assert len(s.experiences) == 1 + later and len(s.experiences[0].classes) == first
    assert all(1 <= len(e.classes) <= per_experience for e in s.experiences[1:])
    assert s.n_seen[-1] == 10 == s.n_classes and s.evaluation == "all"
    for experience in s.experiences:
        originals = train.labels[experience.images.ids]
        assert [s.names[c] for c in experience.images.labels.tolist()] == [NAMES[c] for c in originals.tolist()]
        assert torch.equal(everything(experience.images), pixels(experience.images.ids))


def test_repetition_divides_the_images_of_a_class_evenly() -> None:
    s = with_repetition(dataset(each=40), dataset(), NAMES, n_experiences=21, first=4, per_experience=2, seed=0)
    for c in range(10):
        shares = [int((e.images.labels == c).sum()) for e in s.experiences if c in e.classes]
        assert max(shares) - min(shares) <= 1 and sum(shares) == 40
    visits = [sum(c in e.classes for e in s.experiences) for c in range(10)]
    assert min(visits) >= 2 and max(visits) <= -(-(4 + 2 * 20) // 10)


def test_images_without_a_label_are_no_class_that_repeats() -> None:
    train = dataset()
    without = Images.from_array(train.read(torch.arange(3)), torch.full((3,), -1), torch.arange(9000, 9003))
    protocol = {"n_experiences": 9, "first": 4, "per_experience": 2, "seed": 0}
    s = with_repetition(concatenate([train, without]), dataset(), NAMES, **protocol)  # type: ignore[arg-type]
    expected = with_repetition(train, dataset(), NAMES, **protocol)  # type: ignore[arg-type]
    assert s.fingerprint == expected.fingerprint


def test_repetition_is_drawn_from_its_seed() -> None:
    def make(seed: int) -> Stream:
        return with_repetition(dataset(), dataset(), NAMES, n_experiences=9, first=4, per_experience=2, seed=seed)

    assert make(1).fingerprint == make(1).fingerprint
    assert len({make(seed).fingerprint for seed in range(5)}) == 5


def test_repetition_lets_classes_enter_in_the_order_given() -> None:
    order = [7, 3, 9, 0, 1, 2, 4, 5, 6, 8]
    s = with_repetition(dataset(), dataset(), NAMES, n_experiences=31, first=2, order=order, evaluate_after=(1, 31))
    assert [NAMES.index(name) for name in s.names] == [3, 7, *order[2:]]
    assert {b - a for a, b in zip(s.n_seen, s.n_seen[1:], strict=False)} == {0, 1}
    assert s.evaluate_after == (1, 31)


def test_a_published_stream_with_repetition_stays_as_it_is() -> None:
    """Results under the name digits:nic-A/B-C are compared across versions, so their classes must not change."""
    s = with_repetition(
        dataset(), dataset(), NAMES, n_experiences=13, first=5, per_experience=3, order=range(10), seed=0
    )
    experiences = "01234 245 156 026 167 127 038 038 456 379 579 089 489".split()
    assert [e.classes for e in s.experiences] == [tuple(map(int, classes)) for classes in experiences]


@pytest.mark.parametrize(
    ("n", "first", "per_experience", "words"),
    [
        (3, 4, 2, "8 places, but each of 10 classes comes at least twice.*at least 9 experiences"),
        (0, 10, 1, "at least 11 experiences"),
        (50, 0, 3, "1 to 10 classes at a time"),
        (50, 4, 0, "1 to 10 classes at a time"),
        (50, 11, 1, "1 to 10 classes at a time"),
        (50, 4, 11, "1 to 10 classes at a time"),
        (300, 10, 2, r"Class class \d has 12 images for \d+ experiences; ask for fewer"),
    ],
)
def test_repetition_refuses_what_the_data_does_not_allow(
    n: int, first: int, per_experience: int, words: str
) -> None:
    with pytest.raises(InvalidValue, match=words):
        with_repetition(dataset(), dataset(), NAMES, n_experiences=n, first=first, per_experience=per_experience)


# joint


def test_joint_holds_all_the_data_once() -> None:
    source = class_incremental(dataset(), dataset(each=3), NAMES, first=4, then=3, order=random_class_order(10, 1))
    s = joint(source)
    assert len(s.experiences) == 1 and s.experiences[0].classes == tuple(range(10))
    assert sorted(taught(s)) == sorted(taught(source)) == list(range(120))
    assert torch.equal(everything(s.experiences[0].images), pixels(s.experiences[0].images.ids))
    assert s.test is source.test and s.names == source.names and s.n_classes == 10
    assert s.evaluate_after == (1,)


def test_joint_of_a_stream_of_unknown_size_knows_its_classes() -> None:
    source = class_incremental(dataset(), dataset(), NAMES, first=4, then=3, n_classes_known=False)
    assert joint(source).n_classes == 10


def test_a_random_class_order_is_a_permutation_that_anyone_can_draw_again() -> None:
    assert random_class_order(10, 0) == [8, 1, 0, 4, 6, 9, 7, 2, 5, 3]  # published results name it by its seed
    assert random_class_order(50, 1) == random_class_order(50, 1) != random_class_order(50, 2)


def test_classes_of_an_experience_are_those_with_training_images() -> None:
    images = Images.from_array(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 0, 1, 2]))
    assert Experience(1, images).classes == (0, 1, 2)
    assert Experience(1, images, torch.tensor([True, False, True, False])).classes == (0, 2)
