"""The samples that check an exported model: photos, or else stored samples and generated images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.app.class_names import normalized
from triphase.app.scan import SKIP_BAD
from triphase.data.decoding import decode, in_threads
from triphase.data.feature_cache import unpack
from triphase.data.photo_files import files_below
from triphase.errors import BadData
from triphase.events import OnEvent
from triphase.maths.sampling import evenly_spaced
from triphase.randomness import generator

MAX_SAMPLES = 1000  # photos or latents, evenly spaced
MAX_BYTES = 1 << 28  # of their pixels
N_GENERATED = 24
CHUNK = 32  # photos decoded between two reports of progress
UNKNOWN_CLASS = -1  # the label of a photo in no folder of a class that the model knows


@dataclass(frozen=True)
class Samples:
    """Pixels at the model's size with their classes, and stored latents."""

    kind: Literal["photos", "stored photos", "generated images"]
    pixels: Tensor  # uint8 (n, 3, size, size)
    labels: Tensor  # (n,), UNKNOWN_CLASS where it is not known
    latents: Tensor  # (m, ...)
    skipped: tuple[str, ...] = ()  # a sentence for each photo that cannot be read


def photo_samples(folder: Path, names: Sequence[str], size: int, *, skip_bad: bool, on_event: OnEvent) -> Samples:
    """The photos in a folder at any depth; those in class folders get their labels."""
    if not folder.is_dir():
        raise BadData(f"There is no folder {folder}; --photos takes a folder of photos.")
    found = files_below(folder).images
    if not found:
        raise BadData(f"{folder} holds no photo; give a folder with some, at any depth.")
    files = [found[row] for row in evenly_spaced(len(found), _limit(size)).tolist()]

    def decode_one(file: Path) -> Tensor | str:
        try:
            return decode(file, size)
        except BadData as error:
            if skip_bad:
                return str(error)
            raise BadData(f"{error} {SKIP_BAD}") from error

    decoded: list[Tensor | str] = []
    for start in range(0, len(files), CHUNK):
        decoded += in_threads(decode_one, files[start : start + CHUNK])
        on_event({"event": "decode", "done": len(decoded), "total": len(files)})
    good = [(file, pixels) for file, pixels in zip(files, decoded, strict=True) if isinstance(pixels, Tensor)]
    if not good:
        raise BadData(f"No photo in {folder} can be read; give a folder with some, at any depth.")
    number = {name: label for label, name in enumerate(names)}
    labels = [number.get(_class_folder(file, folder), UNKNOWN_CLASS) for file, _ in good]
    skipped = tuple(sentence for sentence in decoded if isinstance(sentence, str))
    pixels = torch.stack([pixels for _, pixels in good])
    return Samples("photos", pixels, torch.tensor(labels), torch.empty(0), skipped)


def stored_samples(memory: Mapping[str, Any] | None, size: int) -> Samples:
    """The samples of the replay memory: pixels, or latents beside generated images."""
    columns = {} if memory is None else memory["columns"]
    rows = evenly_spaced(len(columns.get("y", ())), _limit(size))
    if "x" in columns and len(rows):
        return Samples("stored photos", columns["x"][rows], columns["y"][rows], torch.empty(0))
    latents = unpack(columns["z"][rows].float()) if "z" in columns else torch.empty(0)
    pixels = _generated(size)
    return Samples("generated images", pixels, torch.full((len(pixels),), UNKNOWN_CLASS), latents)


def _limit(size: int) -> int:
    """How many images of this size are checked at most."""
    return min(MAX_SAMPLES, max(1, MAX_BYTES // (3 * size**2)))


def _class_folder(file: Path, root: Path) -> str:
    """The name of the folder in `root` that a file lies in, or nothing if it lies there itself."""
    parts = file.relative_to(root).parts
    return normalized(parts[0]) if len(parts) > 1 else ""


def _generated(size: int) -> Tensor:
    """uint8 (N_GENERATED, 3, size, size): random colour patterns, from coarse to fine."""
    draw = generator(0, "exported images")
    images = []
    for number in range(N_GENERATED):
        grid = min(size, 2 + number)
        coarse = torch.rand(1, 3, grid, grid, generator=draw) * 2 - 0.5
        images.append(F.interpolate(coarse, (size, size), mode="bicubic"))
    return (torch.cat(images).clamp(0, 1) * 255).round().to(torch.uint8)
