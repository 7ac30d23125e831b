"""Near-duplicates: hashes that survive small changes, and groups of photos that they connect."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from scenes import scene
from triphase.app import near_duplicates
from triphase.app.near_duplicates import HASH_SIZE, dhash, groups, matches_stored, whole_groups
from triphase.data.images import resize
from triphase.randomness import generator


def thumbnails(pictures: list[NDArray[np.uint8]]) -> torch.Tensor:
    return torch.cat([resize(torch.from_numpy(one).permute(2, 0, 1)[None], HASH_SIZE) for one in pictures])


def encoded_again(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=40)
    return np.array(Image.open(buffer))


def test_bursts_form_groups_and_other_scenes_do_not() -> None:
    bursts = []
    for seed in range(8):
        one = scene(seed)
        bursts += [one, encoded_again(one), (one * 0.8).astype(np.uint8), one[3:, 3:], one[:-3, :-3]]
    group = groups(dhash(thumbnails(bursts)), torch.zeros(40))
    assert group.tolist() == [row // 5 * 5 for row in range(40)]


def test_photos_of_two_classes_are_never_one_group() -> None:
    assert groups(torch.zeros(4, 2).long(), torch.tensor([0, 1, 0, 1])).tolist() == [0, 1, 0, 1]


def components(hashes: list[int], labels: list[int], max_bits: int) -> list[int]:
    """The same, pair by pair."""
    group = list(range(len(hashes)))
    for _ in hashes:
        for i in range(len(hashes)):
            for j in range(len(hashes)):
                if labels[i] == labels[j] and bin((hashes[i] ^ hashes[j]) % 2**64).count("1") <= max_bits:
                    group[i] = group[j] = min(group[i], group[j])
    return group


few_bits = st.lists(st.sampled_from([0, 1, 5, 20, 62, 63]), max_size=5).map(
    lambda bits: sum(1 << b for b in set(bits))
)
signed = few_bits.map(lambda value: value - 2**64 if value >= 2**63 else value)


@given(st.lists(st.tuples(signed, st.integers(0, 1)), max_size=12), st.integers(0, 2))
@settings(deadline=None)
def test_groups_are_what_links_connect(photos: list[tuple[int, int]], max_bits: int) -> None:
    hashes, labels = [h for h, _ in photos], [y for _, y in photos]
    pairs = torch.tensor([(3, value) for value in hashes], dtype=torch.long).view(-1, 2)
    found = groups(pairs, torch.tensor(labels, dtype=torch.long), max_bits)
    assert found.tolist() == components(hashes, labels, max_bits)


def test_a_chain_over_many_blocks_is_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_duplicates, "ROWS", 3)
    chain = torch.tensor([((1 << n) - 1, (1 << m) - 1) for n in range(60) for m in (n, n + 1)])
    chain = chain[torch.randperm(120, generator=generator(0, "chain"))]
    assert groups(chain, torch.zeros(120), max_bits=1).unique().tolist() == [0]


def test_five_thousand_photos_and_a_class_of_one() -> None:
    bits = torch.randint(-(2**62), 2**62, (2500, 2), generator=generator(0, "hashes"))
    hashes = torch.cat([bits, bits ^ 1, torch.tensor([[7, 7]])])
    labels = torch.cat([torch.zeros(5000), torch.ones(1)]).long()
    group = groups(hashes, labels)
    assert torch.equal(group[:2500], group[2500:5000]) and group[5000] == 5000


def test_near_duplicates_of_stored_photos_are_marked() -> None:
    pictures = thumbnails([scene(0)[2:, 2:], scene(1), encoded_again(scene(2))])
    stored = dhash(thumbnails([scene(0), scene(2)]))
    hashes, labels = dhash(pictures), torch.tensor([0, 0, 1])
    assert matches_stored(hashes, labels, stored, torch.tensor([0, 0])).tolist() == [True, False, False]
    assert matches_stored(hashes, labels, stored, torch.tensor([1, 1])).tolist() == [False, False, True]
    assert not matches_stored(hashes, labels, stored[:0], labels[:0]).any()
    assert whole_groups(torch.tensor([True, False, False]), torch.tensor([1, 0, 1])).tolist() == [True, False, True]
