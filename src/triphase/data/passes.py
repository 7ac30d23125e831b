"""Passes through frozen parts, as large as the memory of the device allows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from triphase.context import Context
from triphase.errors import OutOfMemory, is_out_of_memory


def in_passes(compute: Callable[[Tensor], Tensor], x: Tensor, context: Context) -> Tensor:
    """compute(x) in one pass; passes are halved for as long as the device runs out of memory.

    The size that was possible is remembered for the next time.
    """
    while True:
        size = min(context.pass_size or len(x), len(x))
        try:
            parts = [compute(part) for part in x.split(size)]
            return torch.cat(parts) if len(parts) > 1 else parts[0]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if size == 1:
                raise OutOfMemory(
                    "The memory of the device is too small for one image: use another --device or smaller images."
                ) from error
            context.pass_size = size // 2
