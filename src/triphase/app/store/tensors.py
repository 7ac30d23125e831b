"""Whether tensors are as expected: their types, their sizes, and that every number in them is finite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema
from torch import Tensor

from triphase.errors import CorruptState


class Shape:
    """A tensor's dtype and sizes; a name stands for one size, the same wherever it occurs, and "*" for any.

    "..." at the end stands for any number of further sizes.
    """

    def __init__(self, dtype: torch.dtype | None, *sizes: int | str) -> None:
        """`dtype` None is any floating-point type."""
        self.dtype, self.sizes = dtype, sizes

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(self._check)

    def _check(self, value: Any, info: core_schema.ValidationInfo[dict[str, int]]) -> Tensor:
        if not isinstance(value, Tensor):
            raise ValueError("it should be a tensor")
        fits = value.is_floating_point() if self.dtype is None else value.dtype == self.dtype
        sizes = [size for size in self.sizes if size != "..."]
        further = len(sizes) < len(self.sizes)
        if not fits or value.dim() < len(sizes) or (value.dim() > len(sizes) and not further):
            expected_type = "floating-point" if self.dtype is None else _short(self.dtype)
            number = f"{len(sizes)} or more" if further else len(sizes)
            raise ValueError(f"{_short(value)} should be {expected_type} of {number} dimensions")
        known = info.context if info.context is not None else {}
        for size, expected in zip(value.shape, sizes, strict=False):
            wanted = expected if isinstance(expected, int) else known.setdefault(expected, size)
            if expected != "*" and size != wanted:
                raise ValueError(f"it is {_short(value)}, where {expected} is {wanted}")
        _check_numbers(value, "it")
        return value


def check_tree(value: Any, where: str) -> None:
    """Refuse tensors that are not finite, and numbers that are NaN."""
    if isinstance(value, Tensor):
        _check_numbers(value, where)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_tree(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            check_tree(item, f"{where}.{i}")
    elif isinstance(value, float) and math.isnan(value):  # a loss is infinite before it is computed
        raise ValueError(f"{where} is not a number")


def check_structure(found: Any, template: Any, where: str = "state") -> None:
    """Refuse parts whose fields, dtypes or sizes are not those of a blank model; its sizes of 0 grow.

    >>> check_structure({"sums": torch.ones(2, 3)}, {"sums": torch.ones(0, 3)})
    >>> check_structure({"sums": torch.ones(2, 4)}, {"sums": torch.ones(0, 3)})
    Traceback (most recent call last):
    triphase.errors.CorruptState: state.sums is float32 (2, 4) where float32 (0, 3) is expected.
    """
    if isinstance(template, Mapping) and isinstance(found, Mapping):
        if template and found.keys() != template.keys():
            odd = sorted(map(str, found.keys() ^ template.keys()))[0]
            raise CorruptState(f"{where} has {'no' if odd in template else 'a'} field {odd}.")
        for key, item in template.items():
            check_structure(found[key], item, f"{where}.{key}")
    elif isinstance(template, Tensor) and isinstance(found, Tensor):
        fits = found.dim() == template.dim() and found.dtype == template.dtype
        if not fits or any(b not in (0, a) for a, b in zip(found.shape, template.shape, strict=True)):
            raise CorruptState(f"{where} is {_short(found)} where {_short(template)} is expected.")
    elif template is not None and type(found) is not type(template):
        raise CorruptState(f"{where} is {type(found).__name__} where {type(template).__name__} is expected.")


def _check_numbers(tensor: Tensor, where: str) -> None:
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{where} holds NaN or infinity")
    if where.endswith("running_var") and bool((tensor < 0).any()):
        raise ValueError(f"{where} holds negative variances")


def _short(value: Tensor | torch.dtype) -> str:
    """A tensor's dtype and sizes, as in "float32 (2, 3)"."""
    if isinstance(value, Tensor):
        return f"{_short(value.dtype)} {tuple(value.shape)}"
    return str(value).removeprefix("torch.")
