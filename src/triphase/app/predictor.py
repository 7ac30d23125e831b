"""Predictor: answers from the inference parts of a version, never writes, and serves any number of threads."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from triphase.app.calibration import Calibration, doubts
from triphase.app.ood import ood_scores
from triphase.app.refit import answering
from triphase.app.store.versions import Store
from triphase.data.decoding import decode, in_threads
from triphase.data.images import Images
from triphase.device import choose
from triphase.errors import BadData, CorruptState
from triphase.models import SplitClassifier, build_for_photos
from triphase.models.engine import CPU, load_graph, provider_for
from triphase.models.folding import fold_layout_
from triphase.models.image_size import load_size, size_state
from triphase.models.inference import ensemble_state, load_ensemble

if TYPE_CHECKING:
    from triphase.app.model import Model

PARTS = ("inference",)  # how the names of the parts begin that a predictor reads
PIXELS = 1 << 18  # that pass the network together, at most
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Answer:
    """What a model says about one image."""

    label: str  # the class, or "unknown"
    probability: float  # of the class that fits best, even if the answer is "unknown"
    best: str  # that class
    known: bool
    doubt: float = 0.0  # by which a person reviews answers: from 0, sure, to 2, like nothing that was taught


class Predictor:
    """A network ready for inference, solved weights, calibration and class names."""

    def __init__(self, parts: Mapping[str, Any], device: str | torch.device = "cpu") -> None:
        """`parts` are those that `inference_parts` made; graphs stay on the CPU if ONNX Runtime has no other."""
        wanted, graphs = (
            choose(device),
            any("graph" in part for part in parts.values() if isinstance(part, Mapping)),
        )
        provider = provider_for(wanted) if graphs else CPU
        self.device = torch.device("cpu") if provider is None else wanted
        try:
            about = parts["inference"]
            self.names, self.size = tuple(about["names"]), load_size(about)
            thresholds = tuple(-math.inf if t is None else t for t in about["thresholds"])
            self.calibration = Calibration(about["temperature"], thresholds)
            blocks = _Blocks(about["backbone"], self.size, provider or CPU)
            self.llf = blocks.llf(parts["inference_llf"]).to(self.device)
            self.ensemble = load_ensemble(_joined(parts), blocks.csf).to(self.device)
            self._check()
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise CorruptState(f"The parts of this model do not belong together ({error!r}).") from error

    @classmethod
    def open(cls, path: Path | str, device: str | torch.device = "cpu") -> Predictor:
        """The predictor of the version in use in a model directory."""
        parts, _ = Store(path).load(parts=PARTS)
        return cls(parts, device)

    def _check(self) -> None:
        """Refuse parts of different models: a blank image must get one probability for each class."""
        probabilities, _ = self(torch.zeros(1, 3, self.size, self.size, dtype=torch.uint8))
        if probabilities.shape != (1, len(self.names)) or not bool(probabilities.isfinite().all()):
            raise ValueError(f"{probabilities.shape[1]} scores for {len(self.names)} classes")

    @torch.inference_mode()
    def __call__(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (n, classes) of uint8 pixels (n, 3, size, size), and whether each is known, (n,) bool."""
        logits, scores = self.scores(pixels)
        return self.calibration.probabilities(logits), self.calibration.accepts(scores)

    def scores(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (n, classes) and out-of-distribution scores (n, k), from which calibration makes the answers."""
        return self.latent_scores(self.latents(pixels))

    @torch.inference_mode()
    def latents(self, pixels: Tensor) -> Tensor:
        """What the frozen half of the network makes of uint8 pixels (n, 3, size, size)."""
        x = pixels.to(self.device).float().contiguous(memory_format=torch.channels_last)
        z: Tensor = self.llf(x)
        return z

    @torch.inference_mode()
    def latent_scores(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """As `scores`, of latents."""
        logits, distances = (t.cpu() for t in self.ensemble(z.to(self.device)))
        if not bool(torch.isfinite(logits).all()):
            raise CorruptState("The scores of this model are not finite: go back to the version before it.")
        return logits, ood_scores(logits, distances)

    @torch.inference_mode()
    def features(self, pixels: Tensor) -> Tensor:
        """(n, D) of uint8 pixels (n, 3, size, size): by these, photos are compared (`TaughtIndex.nearest`)."""
        return self.ensemble.features(self.latents(pixels)).cpu()

    def predict(self, images: Images) -> tuple[Tensor, Tensor]:
        """The same of images that are read as they are needed; never many at a time, so memory stays bounded."""
        rows = torch.arange(len(images)).split(self.chunk)
        parts = [self(images.read(part)) for part in rows if len(part)]
        if not parts:
            return torch.empty(0, len(self.names)), torch.empty(0, dtype=torch.bool)
        probabilities, known = zip(*parts, strict=True)
        return torch.cat(probabilities), torch.cat(known)

    def answers(self, pixels: Tensor) -> list[Answer]:
        """What the model says about each of a few images."""
        probabilities, known = self(pixels)
        best = probabilities.max(1)
        columns = best.indices, best.values, known, doubts(probabilities, known)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [Answer(self.names[i] if ok else UNKNOWN, p, self.names[i], ok, doubt) for i, p, ok, doubt in rows]

    def answer_files(self, files: Sequence[Path]) -> list[Answer | str]:
        """For each file what the model says about it, or a sentence why it cannot be read."""
        answers: list[Answer | str] = []
        for start in range(0, len(files), self.chunk):
            decoded = in_threads(self._decode, files[start : start + self.chunk])
            pixels = [picture for picture in decoded if isinstance(picture, Tensor)]
            said = iter(self.answers(torch.stack(pixels)) if pixels else [])
            answers += [picture if isinstance(picture, str) else next(said) for picture in decoded]
        return answers

    def _decode(self, file: Path) -> Tensor | str:
        """The pixels of a photo, or a sentence."""
        try:
            return decode(file, self.size)
        except BadData as error:
            return str(error)

    @property
    def chunk(self) -> int:
        """How many images pass the network together."""
        return max(1, PIXELS // self.size**2)


class _Blocks:
    """Loads frozen blocks: graphs for ONNX Runtime, or weights for torch, which need the network's layers."""

    def __init__(self, backbone: str, size: int, provider: str) -> None:
        self._provider = provider
        self._build = partial(build_for_photos, backbone, image_size=size, load_pretrained=False)
        self._network: SplitClassifier | None = None

    def llf(self, saved: Mapping[str, Any]) -> nn.Module:
        return load_graph(saved, self._provider) if "graph" in saved else self._load(saved, "llf")

    def csf(self, saved: Mapping[str, Any]) -> nn.Module:
        return load_graph(saved, self._provider) if "graph" in saved else self._load(saved, "csf")

    def _load(self, saved: Mapping[str, Any], name: str) -> nn.Module:
        if self._network is None:
            self._network = self._build()
        block = fold_layout_(copy.deepcopy(getattr(self._network, name)))
        block.load_state_dict(saved)
        return block.eval().requires_grad_(False)


def inference_parts(model: Model) -> dict[str, Any]:
    """What a predictor needs of a model, one entry for each part that changes at its own pace."""
    state, calibration = ensemble_state(answering(model)), model.calibration
    csfs = {f"inference_csf_{i}": member.pop("csf") for i, member in enumerate(state["members"])}
    return {
        "inference": {
            "backbone": model.options.backbone,
            **size_state(model.size),
            "names": list(model.names),
            "temperature": calibration.temperature,
            "thresholds": [t if t > -math.inf else None for t in calibration.thresholds],
        },
        "inference_llf": dict(model.llf.state_dict()),
        "inference_scores": state,
        **csfs,
    }


def _joined(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The state of the ensemble out of its parts."""
    state = parts["inference_scores"]
    members = [member | {"csf": parts[f"inference_csf_{i}"]} for i, member in enumerate(state["members"])]
    return {**state, "members": members}
