"""Augmentation of whole batches: each draw is a pure function of its generator, and no loop visits samples.

Images come and go as uint8 NCHW. A finite augmentation ("none", "flip") has views that can be numbered, so
their features can be cached; the others draw afresh for every minibatch.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.errors import InvalidValue

COMPONENTS = ("crop", "rrc", "flip")
EVERYTHING = slice(None)
TRIES = 10  # torchvision's number of attempts at a random resized crop


def parse(name: str) -> tuple[str, ...]:
    """The components of an augmentation, in the order in which they are applied.

    >>> parse("crop+flip"), parse("none")
    (('crop', 'flip'), ())
    """
    parts = () if name == "none" else tuple(name.split("+"))
    if not set(parts) <= set(COMPONENTS) or len(set(parts)) < len(parts):
        raise InvalidValue(
            f"There is no augmentation {name!r}; use 'none' or some of {', '.join(COMPONENTS)}, "
            "each at most once, joined by '+', such as 'crop+flip'."
        )
    return parts


def n_views(name: str) -> int | None:
    """How many different views of an image the augmentation has, or None if they cannot be numbered.

    >>> n_views("none"), n_views("flip"), n_views("crop+flip")
    (1, 2, None)
    """
    return {(): 1, ("flip",): 2}.get(parse(name))


def draw_views(name: str, n: int, generator: torch.Generator) -> Tensor:
    """A random view number for each of n images, int64; only for augmentations with finitely many.

    >>> draw_views("none", 3, torch.Generator()).tolist()
    [0, 0, 0]
    """
    views = n_views(name)
    if views is None:
        raise InvalidValue(f"The views of augmentation {name!r} cannot be numbered; draw them with apply.")
    if views == 1:
        return torch.zeros(n, dtype=torch.long)
    return torch.randint(views, (n,), generator=generator, device=generator.device)


def view(x: Tensor, views: Tensor) -> Tensor:
    """The given view of each image: 0 as it is, 1 mirrored."""
    return flip(x, views == 1)


def apply(
    name: str,
    x: Tensor,
    generator: torch.Generator,
    size: int,
    *,
    n: int | None = None,
    shard: slice = EVERYTHING,
) -> Tensor:
    """A random augmentation of each image; "rrc" makes it size x size, the others keep its size.

    Finite augmentations draw through `draw_views`, so cached and computed runs see the same images. Where x is a
    shard of a minibatch of n images, each of them is augmented as it would be in the whole minibatch.
    """
    n = len(x) if n is None else n
    for part in parse(name):
        if part == "crop":
            x = padded_crop(x, generator, n=n, shard=shard)
        elif part == "rrc":
            x = random_resized_crop(x, generator, size, n=n, shard=shard)
        else:
            x = view(x, draw_views("flip", n, generator)[shard])
    return x


def flip(x: Tensor, bits: Tensor) -> Tensor:
    """Mirror left and right the images whose bit is set.

    >>> flip(torch.tensor([[[[1, 2]]], [[[1, 2]]]]), torch.tensor([False, True])).flatten().tolist()
    [1, 2, 2, 1]
    """
    return torch.where(bits.to(x.device).view(-1, 1, 1, 1), x.flip(-1), x)


def padded_crop(
    x: Tensor, generator: torch.Generator, pad: int = 4, *, n: int | None = None, shard: slice = EVERYTHING
) -> Tensor:
    """Surround each image with `pad` zeros and cut its own size out again, at a random position."""
    if pad < 0:
        raise InvalidValue(f"pad must be at least 0 pixels, got {pad}.")
    height, width = x.shape[-2:]
    drawn = (2, len(x) if n is None else n)
    offsets = torch.randint(2 * pad + 1, drawn, generator=generator, device=generator.device)[:, shard].to(x.device)
    windows = F.pad(x, (pad, pad, pad, pad)).unfold(2, height, 1).unfold(3, width, 1)  # (n, c, y, x, h, w)
    return windows[torch.arange(len(x), device=x.device), :, offsets[0], offsets[1]]


def center_crop(x: Tensor, size: int) -> Tensor:
    """The size x size pixels in the middle.

    >>> center_crop(torch.arange(16).view(1, 1, 4, 4), 2).flatten().tolist()
    [5, 6, 9, 10]
    """
    height, width = x.shape[-2:]
    if not 1 <= size <= min(height, width):
        raise InvalidValue(f"Cannot cut {size} x {size} pixels out of {height} x {width}; resize first.")
    top, left = round((height - size) / 2), round((width - size) / 2)
    return x[..., top : top + size, left : left + size]


def random_resized_crop(
    x: Tensor,
    generator: torch.Generator,
    size: int,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    *,
    n: int | None = None,
    shard: slice = EVERYTHING,
) -> Tensor:
    """Cut out a box of random area and shape and scale it to size x size, as torchvision does.

    Bilinear; where the image is much larger than `size`, the mean of several samples for each pixel.
    """
    if size < 1 or not 0 < scale[0] <= scale[1] or not 0 < ratio[0] <= ratio[1]:
        raise InvalidValue(
            f"A random resized crop needs a size of at least 1 and increasing positive ranges, got "
            f"size={size}, scale={scale}, ratio={ratio}."
        )
    height, width = x.shape[-2:]
    boxes = _boxes(len(x) if n is None else n, height, width, generator, scale, ratio)
    top, left, h, w = boxes[:, shard].to(x.device)
    fine = max(1, round(max(height, width) / size))  # samples per pixel and axis: shrinking must not alias
    ys, xs = _positions(top, h, height, fine * size), _positions(left, w, width, fine * size)
    grid = torch.stack(torch.broadcast_tensors(xs[:, None, :], ys[:, :, None]), dim=-1)  # (n, y, x, 2)
    sampled = F.grid_sample(x.float(), grid, mode="bilinear", align_corners=False)
    return F.avg_pool2d(sampled, fine).round_().clamp_(0, 255).to(torch.uint8)


def _boxes(
    n: int,
    height: int,
    width: int,
    generator: torch.Generator,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> Tensor:
    """Top, left, height and width of a random box for each image: int64 (4, n)."""
    draws = torch.rand(2, n, TRIES, generator=generator, dtype=torch.float64, device=generator.device)
    place = torch.rand(2, n, generator=generator, dtype=torch.float64, device=generator.device)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * draws[0])
    log_low, log_high = math.log(ratio[0]), math.log(ratio[1])
    shape = torch.exp(log_low + (log_high - log_low) * draws[1])  # width / height
    h, w = (area / shape).sqrt().round(), (area * shape).sqrt().round()  # (n, TRIES)
    valid = (h >= 1) & (h <= height) & (w >= 1) & (w <= width)
    first = valid.int().argmax(1, keepdim=True)  # the first try that fits
    h, w = h.gather(1, first)[:, 0], w.gather(1, first)[:, 0]
    top, left = (place[0] * (height - h + 1)).floor(), (place[1] * (width - w + 1)).floor()
    drawn = torch.stack([top.minimum(height - h), left.minimum(width - w), h, w]).long()
    fallback = torch.tensor(_central_box(height, width, ratio), device=drawn.device)
    return torch.where(valid.any(1), drawn, fallback[:, None])


def _central_box(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int, int, int]:
    """Where no try fits: the largest central box whose shape is allowed."""
    h, w = height, width
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w


def _positions(start: Tensor, length: Tensor, full: int, count: int) -> Tensor:
    """Where to sample a line of `full` pixels to scale a piece of it to `count`: (n, count), in [-1, 1].

    Positions stay between the centres of the piece's outermost pixels, as if it had been cut out first.
    """
    start, length = start[:, None], length[:, None]
    targets = torch.arange(count, device=start.device) + 0.5
    pixels = (start + targets * length / count).clamp(start + 0.5, start + length - 0.5)
    return 2 * pixels / full - 1
