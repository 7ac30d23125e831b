"""Which photos are alike, and which are held out to measure with: whole groups, so that no burst is torn apart."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.errors import InvalidValue

SIDE = 96  # pixels: photos are compared at this size
ALIKE = 12  # of the 128 bits of two hashes may differ in one burst; see `near_duplicates`
ROWS = 1024  # hashes compared with all others together


def dhash(pixels: Tensor) -> Tensor:
    """128 bits that change little when a picture does, as two int64: where it gets brighter to the right and down.

    >>> dark = torch.arange(96, dtype=torch.uint8).expand(1, 3, 96, 96)
    >>> torch.equal(dhash(dark), dhash(dark + 40))
    True
    """
    grey = pixels.sum(1, keepdim=True, dtype=torch.float) / 3
    return torch.stack([_brighter(grey), _brighter(grey.mT)], 1)  # (n, 2)


def _brighter(grey: Tensor) -> Tensor:
    """Where an image of 8 rows and 9 columns gets brighter to the right, 64 bits."""
    small = F.interpolate(grey, size=(8, 9), mode="bilinear", antialias=True)
    bits = (small[..., 1:] > small[..., :-1] + 0.5).flatten(1)  # plain areas are no noise
    return (bits.long() << torch.arange(64)).sum(1)


def near_duplicates(hashes: Tensor, labels: Tensor, alike: int = ALIKE) -> Tensor:
    """The group of each photo, as the row of its first member: bursts and other near-copies within a class.

    Photos are linked if their hashes differ by at most `alike` bits; linked photos form a group. Measured with 12
    bits on CIFAR-100: of pairs from two classes one in 1.2 million is linked, of pairs from one class (true copies
    among them) one in 9,000; of altered copies those brightened 97 to 100 %, compressed to JPEG 20 99.6 %, with 2 %
    cut off at two sides 97 %, with 4 % 47 %. 3 % of the training images are in groups; plain scenes that look alike
    join too, and the largest group has 44 of the 500 images of the sea.

    >>> hashes = torch.tensor([[0b1, 0], [0b11, 0], [0, 0xFFFF], [0b1, 0]])
    >>> near_duplicates(hashes, torch.tensor([0, 0, 0, 1]), alike=1).tolist()
    [0, 0, 2, 3]
    """
    group = torch.arange(len(hashes))
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero().view(-1)
        distinct, which = hashes[rows].unique(dim=0, return_inverse=True)
        group[rows] = rows[_first_of_each(_linked(distinct, alike)[which])]
    return group


def _linked(hashes: Tensor, alike: int) -> Tensor:
    """Connected components of hashes that differ little: for each the smallest row of its component."""
    root = torch.arange(len(hashes))
    for first in range(0, len(hashes), ROWS):
        a, b = (_distances(hashes[first : first + ROWS], hashes) <= alike).nonzero().unbind(1)
        a = a + first
        while bool((root[a] != root[b]).any()):
            low, high = torch.minimum(root[a], root[b]), torch.maximum(root[a], root[b])
            root = root.scatter_reduce(0, high, low, "amin")
            while not torch.equal(root, root[root]):
                root = root[root]
    return root


def _first_of_each(groups: Tensor) -> Tensor:
    """For each row the first row that has its value."""
    first = torch.full((int(groups.max()) + 1,), len(groups)).scatter_reduce(
        0, groups, torch.arange(len(groups)), "amin"
    )
    return first[groups]


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """The number of bits that differ between each hash of `a` and each of `b`."""
    signs = [((hashes[..., None] >> torch.arange(64)) & 1).flatten(1).float() * 2 - 1 for hashes in (a, b)]
    return (128 - signs[0] @ signs[1].T) / 2


def near_stored(
    hashes: Tensor, labels: Tensor, stored: Tensor, stored_labels: Tensor, alike: int = ALIKE
) -> Tensor:
    """Which photos are near-duplicates of a stored one (its hash is given) of their class, bool.

    >>> hashes, labels = torch.tensor([[1, 0], [1, 0], [255, 0]]), torch.tensor([0, 1, 0])
    >>> near_stored(hashes, labels, torch.tensor([[3, 0]]), torch.tensor([0]), alike=1).tolist()
    [True, False, False]
    """
    near = torch.zeros(len(hashes), dtype=torch.bool)
    for label in stored_labels.unique().tolist():
        rows = (labels == label).nonzero().view(-1)
        others = stored[stored_labels == label]
        for part in rows.split(ROWS):
            near[part] = (_distances(hashes[part], others) <= alike).any(1)
    return near


def whole_groups(mask: Tensor, groups: Tensor) -> Tensor:
    """A mask extended to all members of the groups that it touches.

    >>> whole_groups(torch.tensor([True, False, False]), torch.tensor([0, 1, 0])).tolist()
    [True, False, True]
    """
    return torch.isin(groups, groups[mask])


def split_exemplars(
    groups: Tensor,
    labels: Tensor,
    keys: Tensor,
    limit: int,
    share: float = 0.2,
    kept: Sequence[int] = (),  # the classes of photos that were kept before; the limit counts them, too
) -> Tensor:
    """Which photos are kept for measuring, bool: of each class about `share`, at most `limit`, in whole groups.

    Groups are drawn by their members' random keys, so the same photos are always split the same way. A class of
    one group has nothing to spare; of any other at least one group is kept, if it is within the limit and half
    the class.
    """
    if not 0 < share <= 0.5:
        raise InvalidValue(f"The share kept for measuring must be above 0 and at most 0.5, got {share}.")
    held = torch.zeros(len(groups), dtype=torch.bool)
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero().view(-1)
        _, member, sizes = groups[rows].unique(return_inverse=True, return_counts=True)
        # The largest of k uniform keys, to the power of k, is uniform again: large groups are drawn no more often.
        uniform = keys[rows].double() / 2**63
        top = torch.zeros(len(sizes), dtype=torch.double).scatter_reduce(0, member, uniform, "amax") ** sizes
        order = top.argsort(descending=True)
        room = limit - kept.count(label)
        target = min(room, max(1, round(share * len(rows))))
        chosen = _drawn(sizes[order].tolist(), target, most=min(room, len(rows) // 2))
        held[rows] = torch.isin(member, order[chosen])
    return held


def _drawn(sizes: list[int], target: int, most: int) -> list[int]:
    """The first groups that fit into the target together; if none does, the smallest, but no more than `most`."""
    drawn: list[int] = []
    if len(sizes) < 2:
        return drawn
    for i, size in enumerate(sizes):
        if size <= target:
            drawn.append(i)
            target -= size
    smallest = min(range(len(sizes)), key=sizes.__getitem__)
    return drawn or ([smallest] if sizes[smallest] <= most else [])
