"""Near-duplicates: photos whose perceptual hashes differ by a few bits, such as bursts and re-encoded copies."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

HASH_SIZE = 96  # pixels: the side of the square that `dhash` is computed from
MAX_BITS = 12  # of the 128 bits of two hashes may differ in one group; see `groups`
ROWS = 1024  # hashes compared with all others together


def dhash(pixels: Tensor) -> Tensor:
    """Difference hashes of images (n, 3, height, width): 128 bits each as int64 (n, 2), where it gets brighter
    to the right and where downwards.

    >>> dark = torch.arange(96, dtype=torch.uint8).expand(1, 3, 96, 96)
    >>> torch.equal(dhash(dark), dhash(dark + 40))
    True
    """
    grey = pixels.sum(1, keepdim=True, dtype=torch.float) / 3
    return torch.stack([_brighter(grey), _brighter(grey.mT)], 1)  # (n, 2)


def _brighter(grey: Tensor) -> Tensor:
    """Where an image, scaled to 8 rows and 9 columns, gets brighter to the right: 64 bits."""
    small = F.interpolate(grey, size=(8, 9), mode="bilinear", antialias=True)
    bits = (small[..., 1:] > small[..., :-1] + 0.5).flatten(1)  # a threshold of 0.5 ignores noise in plain areas
    return (bits.long() << torch.arange(64)).sum(1)


def groups(hashes: Tensor, labels: Tensor, max_bits: int = MAX_BITS) -> Tensor:
    """The group of each photo, as the row of its first member: near-duplicates within a class.

    Photos are linked if their hashes differ by at most `max_bits` bits; linked photos form a group. Measured on
    CIFAR-100 with 12 bits: one in 1.2 million pairs of two classes is linked, and one in 9,000 pairs of one class
    (true copies among them). Of altered copies, 97 to 100 % are linked if they were brightened, 99.6 % if they were
    compressed to JPEG of quality 20, 97 % if 2 % was cut off at two sides, and 47 % if 4 % was cut off. 3 % of the
    training images are in groups. Plain scenes that look the same are linked, too: the largest group has 44 of the
    500 images of the sea.

    >>> hashes = torch.tensor([[0b1, 0], [0b11, 0], [0, 0xFFFF], [0b1, 0]])
    >>> groups(hashes, torch.tensor([0, 0, 0, 1]), max_bits=1).tolist()
    [0, 0, 2, 3]
    """
    group = torch.arange(len(hashes))
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero().view(-1)
        distinct, which = hashes[rows].unique(dim=0, return_inverse=True)
        linked = components(len(distinct), partial(_near, distinct, max_bits))
        group[rows] = rows[_first_of_each(linked[which])]
    return group


def components(n: int, links: Callable[[Tensor], Tensor]) -> Tensor:
    """(n,): the smallest row of each row's connected component; links(rows) is bool (len(rows), n).

    >>> components(4, lambda rows: (rows[:, None] - torch.arange(4)).abs() == 2).tolist()
    [0, 1, 0, 1]
    """
    root = torch.arange(n)
    for rows in torch.arange(n).split(ROWS):
        a, b = links(rows).nonzero().unbind(1)
        a = a + rows[0]
        while bool((root[a] != root[b]).any()):
            low, high = torch.minimum(root[a], root[b]), torch.maximum(root[a], root[b])
            root = root.scatter_reduce(0, high, low, "amin")
            while not torch.equal(root, root[root]):
                root = root[root]
    return root


def _first_of_each(values: Tensor) -> Tensor:
    """For each row the first row that has its value."""
    first = torch.full((int(values.max()) + 1,), len(values)).scatter_reduce(
        0, values, torch.arange(len(values)), "amin"
    )
    return first[values]


def _near(hashes: Tensor, max_bits: int, rows: Tensor) -> Tensor:
    """(len(rows), n) bool: which hashes differ little from those of the rows."""
    return _hamming(hashes[rows], hashes) <= max_bits


def _hamming(a: Tensor, b: Tensor) -> Tensor:
    """The number of bits that differ between each hash of `a` and each of `b`, (len(a), len(b))."""
    signs = [((hashes[..., None] >> torch.arange(64)) & 1).flatten(1).float() * 2 - 1 for hashes in (a, b)]
    return (128 - signs[0] @ signs[1].T) / 2


def matches_stored(
    hashes: Tensor, labels: Tensor, stored: Tensor, stored_labels: Tensor, max_bits: int = MAX_BITS
) -> Tensor:
    """Which photos are near-duplicates of a stored one of their class, bool (n,); `stored` are its hashes.

    >>> hashes, labels = torch.tensor([[1, 0], [1, 0], [255, 0]]), torch.tensor([0, 1, 0])
    >>> matches_stored(hashes, labels, torch.tensor([[3, 0]]), torch.tensor([0]), max_bits=1).tolist()
    [True, False, False]
    """
    near = torch.zeros(len(hashes), dtype=torch.bool)
    for label in stored_labels.unique().tolist():
        rows = (labels == label).nonzero().view(-1)
        others = stored[stored_labels == label]
        for part in rows.split(ROWS):
            near[part] = (_hamming(hashes[part], others) <= max_bits).any(1)
    return near


def whole_groups(mask: Tensor, groups: Tensor) -> Tensor:
    """A mask extended to all members of the groups that it touches.

    >>> whole_groups(torch.tensor([True, False, False]), torch.tensor([0, 1, 0])).tolist()
    [True, False, True]
    """
    return torch.isin(groups, groups[mask])
