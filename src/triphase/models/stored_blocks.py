"""Frozen blocks as a version stores them: graphs for ONNX Runtime, or weights for torch, which need the network."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from triphase.device import choose
from triphase.models import DepthFeatures, SplitClassifier, build_for_photos
from triphase.models.engine import load_graph
from triphase.models.folding import fold_layout_


class StoredBlocks:
    """Loads the blocks of one network as modules."""

    def __init__(self, backbone: str, size: int) -> None:
        self._build = partial(build_for_photos, backbone, image_size=size, load_pretrained=False)
        self._network: SplitClassifier | None = None

    def llf(self, saved: Mapping[str, Any]) -> nn.Module:
        """llf, from float pixels 0..255."""
        return self._load(saved, "llf")

    def csf(self, saved: Mapping[str, Any], max_width: int | None = None) -> nn.Module:
        """csf, read at every depth if that was stored with a width."""
        csf = self._load(saved, "csf")
        return csf if max_width is None else DepthFeatures(csf, max_width=max_width)

    def _load(self, saved: Mapping[str, Any], name: str) -> nn.Module:
        tensors = {
            key: torch.tensor(value) if isinstance(value, np.ndarray) else value for key, value in saved.items()
        }
        if "graph" in tensors:
            return load_graph(tensors)
        if self._network is None:
            self._network = self._build()
        block = fold_layout_(copy.deepcopy(getattr(self._network, name)))
        block.load_state_dict(tensors)
        return block.eval().requires_grad_(False)


class OnArrays:
    """A block on a device as a function of numpy arrays, which can be pickled."""

    def __init__(self, block: nn.Module, device: str | torch.device) -> None:
        self._device = choose(device)
        self._block = block.to(self._device)

    @torch.inference_mode()
    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        """The output of the block."""
        given = torch.from_numpy(x).to(self._device)
        given = given.contiguous(memory_format=torch.channels_last) if given.dim() == 4 else given
        out: NDArray[Any] = self._block(given).cpu().numpy()
        return out
