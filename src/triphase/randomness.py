"""The only source of random numbers: every draw is a pure function of a seed, a purpose and counters.

Nothing here keeps state, so a run can be resumed anywhere and draws what it would have drawn.
"""

import hashlib

import numpy as np
import torch
from torch import Tensor


def generator(seed: int, purpose: str, *counters: int) -> torch.Generator:
    """A fresh CPU generator for one draw.

    >>> a = torch.rand(2, generator=generator(0, "shuffle", 1, 2))
    >>> b = torch.rand(2, generator=generator(0, "shuffle", 1, 2))
    >>> bool((a == b).all())
    True
    """
    text = ":".join([str(seed), purpose, *map(str, counters)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def keys(seed: int, ids: Tensor) -> Tensor:
    """One uniform 63-bit key per sample id, int64: the priorities of the reservoir (splitmix64).

    >>> keys(0, torch.tensor([7, 8])).tolist() == keys(0, torch.tensor([7, 8])).tolist()
    True
    """
    salt = int.from_bytes(hashlib.blake2b(f"{seed}:reservoir".encode(), digest_size=8).digest(), "little")
    z = ids.cpu().numpy().astype(np.int64).view(np.uint64) + np.uint64(salt)
    with np.errstate(over="ignore"):
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return torch.from_numpy((z >> np.uint64(1)).astype(np.int64))
