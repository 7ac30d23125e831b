"""Predictor: answers from the inference parts of a version, never writes, and serves any number of threads.

It computes in numpy. Where ONNX Runtime runs the network, torch is not even imported, which takes a second.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from triphase import scoring
from triphase.app.answers import Calibration, doubts, ood_scores
from triphase.app.class_names import UNKNOWN as UNKNOWN
from triphase.app.store.versions import Store
from triphase.data.decoding import DECODE_THREADS, decode_array
from triphase.errors import BadData, CorruptState, OutOfMemory, TriphaseWarning, is_out_of_memory
from triphase.events import OnEvent, ignore_event
from triphase.image_size import load_size
from triphase.onnx_session import CPU, CUDA, Graph, offers_cuda
from triphase.scoring import Array

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from triphase.data.images import Images

PARTS = ("inference",)  # prefixes of the parts that a predictor reads
PIXELS = 1 << 19  # in one pass through the network, at most
Numbers = NDArray[Any]
Block = Callable[[Numbers], Numbers]


@dataclass(frozen=True)
class Answer:
    """The answer to one image."""

    label: str  # the class, or "unknown"
    probability: float  # of the class that fits best, even if the answer is "unknown"
    best: str  # that class
    known: bool
    doubt: float = 0.0  # for sorting answers to review: 0 is sure, 2 resembles nothing taught


@dataclass(frozen=True)
class Member:
    """One linear classifier of the features of csf."""

    csf: Block
    weight: Numbers  # (n_classes, D)
    bias: Numbers | None  # (n_classes,)
    unit_length: bool  # features are scaled to length 1
    whitening: Mapping[str, Numbers] | None  # factor (D, D), whitened means (n_classes, D) and their centre (D,)

    def features(self, z: Numbers) -> Numbers:
        """(n, D) of latents."""
        f = self.csf(z)
        return scoring.unit_length(f) if self.unit_length else f

    def scores(self, f: Numbers) -> Numbers:
        """(n, n_classes) of features."""
        scores: Numbers = scoring.linear(f, self.weight, self.bias)
        return scores

    def distances(self, f: Numbers) -> Numbers:
        """(n, 2) out-of-distribution scores, or (n, 0) for a member without covariance."""
        if self.whitening is None:
            return np.empty((len(f), 0), f.dtype)
        white = scoring.whiten(f - self.whitening["centre"], self.whitening["factor"])
        near: Numbers = scoring.nearness(white, self.whitening["means"])
        return near


class Predictor:
    """A network ready for inference, solved weights, calibration and class names.

    Tensors give tensors, and arrays give arrays.
    """

    def __init__(
        self, parts: Mapping[str, Any], device: str | torch.device = "cpu", threads: int | None = None
    ) -> None:
        """`parts` are those that `inference_parts` made.

        A model may hold ONNX graphs. They run on the CPU where ONNX Runtime does not support the device, with a
        warning unless the device is "auto". `threads` is for ONNX Runtime; by default, one for each core.
        """
        try:
            arrays = {name: _as_arrays(part) for name, part in parts.items() if name.startswith(PARTS)}
            blocks = _Blocks(arrays, device, threads or cores())
            self.device = str(blocks.device)
            about, scores = arrays["inference"], arrays["inference_scores"]
            self.names, self.size = tuple(about["names"]), load_size(about)
            self.calibration = Calibration.stored(about)
            self._llf = blocks.llf()
            self._members = [blocks.member(number, saved) for number, saved in enumerate(scores["members"])]
            self._weights, self._stds = scores["weights"], scores["stds"]
            self._check()
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            if is_out_of_memory(error):
                raise OutOfMemory(
                    "The memory of the device does not suffice for the model: use another --device, or free memory."
                ) from error
            raise CorruptState(f"The parts of this model do not belong together ({error!r}).") from error

    @classmethod
    def open(cls, path: Path | str, device: str | torch.device = "cpu", threads: int | None = None) -> Predictor:
        """The predictor of the version in use in a model directory."""
        parts, _ = Store(path).load(parts=PARTS, arrays=True)
        return cls(parts, device, threads)

    def _check(self) -> None:
        """Refuse parts of different models: a blank image must get one probability for each class."""
        probabilities, _ = self(np.zeros((1, 3, self.size, self.size), np.uint8))
        if probabilities.shape != (1, len(self.names)) or not bool(np.isfinite(probabilities).all()):
            raise ValueError(f"{probabilities.shape[1]} scores for {len(self.names)} classes")

    def __call__(self, pixels: Array) -> tuple[Array, Array]:
        """Probabilities (n, classes) of uint8 pixels (n, 3, size, size), and whether each is known, (n,) bool."""
        logits, scores = self.scores(pixels)
        return self.calibration.probabilities(logits), self.calibration.accepts(scores)

    def scores(self, pixels: Array) -> tuple[Array, Array]:
        """Logits (n, classes) and out-of-distribution scores (n, k), from which calibration makes the answers."""
        return self.latent_scores(self.latents(pixels))

    def latents(self, pixels: Array) -> Array:
        """The output of llf for uint8 pixels (n, 3, size, size)."""
        return _like(pixels, self._llf(_array(pixels).astype(np.float32)))

    def latent_scores(self, z: Array) -> tuple[Array, Array]:
        """As `scores`, of latents."""
        parts, distances = scoring.member_scores(self._members, self._stds, _array(z))
        logits = scoring.weighted(parts, self._weights)
        if not bool(np.isfinite(logits).all()):
            raise CorruptState("The scores of this model are not finite: go back to the version before it.")
        return _like(z, logits), _like(z, ood_scores(logits, distances))

    def features(self, pixels: Array) -> Array:
        """(n, D) of uint8 pixels (n, 3, size, size), to compare photos with (`TaughtIndex.nearest`)."""
        return _like(pixels, self._members[-1].features(_array(self.latents(pixels))))

    def predict(self, images: Images) -> tuple[Tensor, Tensor]:
        """As `__call__`, for images that are read in batches, so memory stays bounded."""
        import torch

        rows = torch.arange(len(images)).split(self.chunk)
        parts = [self(images.read(part)) for part in rows if len(part)]
        if not parts:
            return torch.empty(0, len(self.names)), torch.empty(0, dtype=torch.bool)
        probabilities, known = zip(*parts, strict=True)
        return torch.cat(probabilities), torch.cat(known)

    def answers(self, pixels: Array) -> list[Answer]:
        """The answer to each image of one batch."""
        probabilities, known = self(_array(pixels))
        columns = probabilities.argmax(1), probabilities.max(1), known, doubts(probabilities, known)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [Answer(self.names[i] if ok else UNKNOWN, p, self.names[i], ok, doubt) for i, p, ok, doubt in rows]

    def answer_files(self, files: Sequence[Path], *, on_event: OnEvent = ignore_event) -> list[Answer | str]:
        """The answer to each file, or a sentence why it cannot be read."""
        answers: list[Answer | str] = []
        for decoded in self._decoded(files):
            pixels = [picture for picture in decoded if not isinstance(picture, str)]
            answered = iter(self.answers(np.stack(pixels)) if pixels else [])
            answers += [picture if isinstance(picture, str) else next(answered) for picture in decoded]
            on_event({"event": "answer", "done": len(answers), "total": len(files)})
        return answers

    def _decoded(self, files: Sequence[Path]) -> Iterator[list[NDArray[np.uint8] | str]]:
        """The pixels of photos, or sentences, a few at a time, while the next ones are decoded."""
        if len(files) == 1:
            yield [self._decode(files[0])]
            return
        with ThreadPoolExecutor(DECODE_THREADS) as pool:
            starts = range(0, len(files), self.chunk)
            ahead = [pool.map(self._decode, files[start : start + self.chunk]) for start in starts[:2]]
            for start in starts:
                yield list(ahead.pop(0))
                later = start + 2 * self.chunk
                ahead.append(pool.map(self._decode, files[later : later + self.chunk]))

    def _decode(self, file: Path) -> NDArray[np.uint8] | str:
        """The pixels of a photo, or a sentence."""
        try:
            return decode_array(file, self.size)
        except BadData as error:
            return str(error)

    @property
    def chunk(self) -> int:
        """How many images pass the network together."""
        return max(1, PIXELS // self.size**2)


class _Blocks:
    """Loads frozen blocks as functions of arrays: graphs for ONNX Runtime, or weights, which need torch."""

    def __init__(self, parts: Mapping[str, Any], device: str | torch.device, threads: int) -> None:
        self._parts, self._threads = parts, threads
        graphs = any("graph" in part for part in parts.values())
        self.device, self._provider = _placed(device, graphs)

    def llf(self) -> Block:
        """llf, from float pixels 0..255."""
        saved = self._parts["inference_llf"]
        return self._session(saved) if "graph" in saved else self._module(saved, "llf")

    def member(self, number: int, saved: Mapping[str, Any]) -> Member:
        """A member of the ensemble."""
        csf, whitening = self._parts[f"inference_csf_{number}"], saved["whitening"]
        if whitening is not None:
            whitening = whitening | {"factor": scoring.unpacked(whitening["factor"], len(whitening["centre"]))}
        reader = self._session(csf) if "graph" in csf else self._module(csf, "csf", saved["max_width"])
        return Member(reader, saved["weight"], saved["bias"], saved["unit_length"], whitening)

    def _session(self, saved: Mapping[str, Any]) -> Block:
        return Graph(saved["graph"].tobytes(), self._threads, self._provider)

    def _module(self, saved: Mapping[str, Any], name: str, max_width: int | None = None) -> Block:
        from triphase.models.stored_blocks import OnArrays, StoredBlocks

        about = self._parts["inference"]
        blocks = StoredBlocks(about["backbone"], load_size(about))
        return OnArrays(blocks.llf(saved) if name == "llf" else blocks.csf(saved, max_width), self.device)


def cores() -> int:
    """The default number of threads: as many as torch would use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _placed(device: str | torch.device, graphs: bool) -> tuple[str | torch.device, str]:
    """The device, and the provider of ONNX Runtime for it."""
    if str(device) == "cpu" or (graphs and str(device) == "auto" and not offers_cuda()):
        return "cpu", CPU
    from triphase.device import choose

    chosen = choose(device)
    if not graphs:
        return chosen, CPU
    if chosen.type == "cuda" and offers_cuda():
        return chosen, CUDA
    if chosen.type != "cpu":
        sentence = f"ONNX Runtime offers nothing for {device} here, and this model holds its graphs"
        warnings.warn(f"{sentence}: the CPU answers.", TriphaseWarning, stacklevel=4)
    return "cpu", CPU


def _as_arrays(value: Any) -> Any:
    """A part of a state with arrays instead of tensors, in the same memory."""
    if isinstance(value, Mapping):
        return {key: _as_arrays(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_arrays(item) for item in value]
    return _array(value) if hasattr(value, "detach") else value


def _array(x: Array) -> Numbers:
    return x if isinstance(x, np.ndarray) else x.detach().cpu().numpy()


def _like(given: Array, array: Numbers) -> Array:
    """An array as a tensor, if a tensor was given."""
    if isinstance(given, np.ndarray):
        return array
    import torch

    return torch.from_numpy(array)
