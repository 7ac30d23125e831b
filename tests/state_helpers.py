"""What tests of states on disk share."""

import math
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def assert_same(found: Any, expected: Any) -> None:
    """Equal in structure, type, shape and every bit; tuples come back as lists."""
    if isinstance(expected, Tensor):
        assert isinstance(found, Tensor) and found.dtype == expected.dtype and found.shape == expected.shape
        bits = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (found, expected)]
        assert torch.equal(*bits)
    elif isinstance(expected, dict):
        assert found.keys() == {str(key) for key in expected}
        for key, value in expected.items():
            assert_same(found[str(key)], value)
    elif isinstance(expected, list | tuple):
        assert isinstance(found, list) and len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)
    elif isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(found)
    else:
        assert found == expected and type(found) is type(expected)


def failing(number: int) -> Callable[..., None]:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail
