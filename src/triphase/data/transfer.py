"""Copy tensors from the host to the device."""

from __future__ import annotations

import torch
from torch import Tensor


class Upload:
    """Copies tensors to a device: to CUDA in the background, beside what is being computed there."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pins = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if self._pins else None

    def pinned(self, tensor: Tensor) -> Tensor:
        """The tensor in page-locked memory, from which CUDA copies by itself; elsewhere as it is."""
        return tensor.pin_memory() if self._pins else tensor

    def empty(self, shape: tuple[int, ...]) -> Tensor:
        """An uninitialised float tensor on the host to be filled and copied."""
        return torch.empty(shape, pin_memory=self._pins)

    def __call__(self, tensor: Tensor) -> Tensor:
        """The tensor on the device; what is computed from now on waits for it, and the host does not."""
        if self._stream is None:
            return tensor.to(self.device)
        with torch.cuda.stream(self._stream):
            there = self.pinned(tensor).to(self.device, non_blocking=True)
        computing = torch.cuda.current_stream(self.device)
        computing.wait_stream(self._stream)
        there.record_stream(computing)  # its memory is not reused while it is read
        return there
