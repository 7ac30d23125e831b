"""How much memory the latents of one lesson or run may take."""

from __future__ import annotations

import os
import tempfile
import weakref
from math import prod

import numpy as np
import torch
from torch import Tensor

from triphase.errors import InvalidValue, TriphaseError


class Budget:
    """Allocates tensors in memory up to `limit` bytes, by default a quarter of the machine's, and then on disk.

    The file on disk has no name, so it vanishes with the process, however that ends.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = _quarter_of_memory() if limit is None else limit
        self._sizes: dict[object, int] = {}  # of the tensors that are alive

    @classmethod
    def megabytes(cls, n: int) -> Budget:
        """A budget of n megabytes.

        >>> Budget.megabytes(3).limit
        3145728
        """
        if n < 0:
            raise InvalidValue(f"The budget for latents must not be negative, got {n} MB.")
        return cls(n << 20)

    @property
    def used(self) -> int:
        """The bytes in memory that are in use."""
        return sum(list(self._sizes.values()))

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialised tensor, in memory while the budget lasts, then in an unnamed file.

        >>> Budget(limit=10).allocate((4, 4), torch.float16).shape
        torch.Size([4, 4])
        """
        size = prod(shape) * dtype.itemsize
        if size == 0 or self.used + size <= self.limit:
            tensor, key = torch.empty(shape, dtype=dtype), object()
            self._sizes[key] = size
            weakref.finalize(tensor, self._sizes.pop, key)  # atomic: the garbage collector runs in any thread
            return tensor
        try:
            with tempfile.TemporaryFile(prefix="triphase-latents-") as file:  # TMPDIR says where
                _reserve(file.fileno(), size)
                bytes_ = np.memmap(file, dtype=np.uint8, mode="r+", shape=(size,))
        except OSError as error:
            raise TriphaseError(
                f"Latents of {size >> 20} MB fit neither into the budget of {self.limit >> 20} MB nor into "
                f"{tempfile.gettempdir()} ({error.strerror}); set TMPDIR to a larger disk or raise the budget."
            ) from error
        return torch.from_numpy(bytes_).view(dtype).view(shape)


def _reserve(descriptor: int, size: int) -> None:
    """Give the file its blocks now, where the system can: a mapped write to a full disk would kill the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)


def _quarter_of_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):  # not every system says
        return 2 << 30
