"""Streams of which only a part is labelled."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triphase.data.partial_labels import hide_labels
from triphase.data.streams import UNLABELLED, Experience, class_incremental
from triphase.errors import BadData, InvalidValue
from triphase.testing import tiny_images

STREAM = class_incremental(tiny_images(), tiny_images(), list("abcd"), first=2, then=1)


@given(st.floats(0.01, 1.0), st.integers(0, 3))
def test_each_class_keeps_its_share_of_labels_and_every_image_stays(share: float, seed: int) -> None:
    hidden = hide_labels(STREAM, share, seed)
    for before, after in zip(STREAM.experiences, hidden.experiences, strict=True):
        assert after.classes == before.classes
        counts = torch.bincount(after.images.labels)[list(after.classes)]
        assert set(counts.tolist()) == {max(1, round(9 * share))}
        assert bool((after.unlabelled.labels == UNLABELLED).all())
        everything = torch.cat([after.images.ids, after.unlabelled.ids])
        assert sorted(everything.tolist()) == sorted(before.images.ids.tolist())
        label_of = dict(zip(before.images.ids.tolist(), before.images.labels.tolist(), strict=True))
        assert [label_of[i] for i in after.images.ids.tolist()] == after.images.labels.tolist()


def test_the_seed_says_which_labels_are_known_and_more_labels_include_fewer() -> None:
    few, many, other = (hide_labels(STREAM, *how) for how in ((0.3, 0), (0.7, 0), (0.3, 1)))
    assert few.fingerprint == hide_labels(STREAM, 0.3, 0).fingerprint
    assert len({stream.fingerprint for stream in (few, many, other, STREAM)}) == 4
    assert hide_labels(STREAM, 1.0).fingerprint == STREAM.fingerprint
    for a, b in zip(few.experiences, many.experiences, strict=True):
        assert set(a.images.ids.tolist()) < set(b.images.ids.tolist())


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(InvalidValue, match="above 0 and at most 1"):
        hide_labels(STREAM, share)


@pytest.mark.parametrize(
    ("labels", "words"), [([-1, -1], "No image of experience 1 has a label"), ([0, -2], "has the label -2")]
)
def test_an_experience_needs_labels_that_can_be_used(labels: list[int], words: str) -> None:
    images = tiny_images().select(torch.arange(2), torch.tensor(labels))
    with pytest.raises(BadData, match=words):
        Experience(1, images)


def test_held_out_rows_and_columns_follow_the_labelled_images() -> None:
    images = tiny_images().select(torch.arange(4), torch.tensor([0, -1, 1, 1]))
    held_out, numbers = torch.tensor([False, True, True, False]), torch.arange(4)
    experience = Experience(3, images, held_out, {"number": numbers})
    assert experience.held_out is not None and experience.held_out.tolist() == [False, True, False]
    assert experience.columns["number"].tolist() == [0, 2, 3]
    assert experience.classes == (0, 1) and experience.unlabelled.ids.tolist() == [1]
