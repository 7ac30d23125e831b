"""Whether tensors are as expected: their types, their sizes, and that every number in them is finite.

Where a state is read as numpy arrays, these stand for the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from triphase.errors import CorruptState
from triphase.state import dtype_name, is_array


class Shape:
    """A tensor's dtype and sizes; a name stands for one size, the same wherever it occurs, and "*" for any.

    "..." at the end stands for any number of further sizes.
    """

    def __init__(self, dtype: str | None, *sizes: int | str) -> None:
        """`dtype` None is any floating-point type."""
        self.dtype, self.sizes = dtype, sizes

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(self._check)

    def _check(self, value: Any, info: core_schema.ValidationInfo[dict[str, int]]) -> Any:
        if not is_array(value):
            raise ValueError("it should be a tensor")
        fits = _is_floating_point(value) if self.dtype is None else dtype_name(value) == self.dtype
        sizes = [size for size in self.sizes if size != "..."]
        further = len(sizes) < len(self.sizes)
        if not fits or value.ndim < len(sizes) or (value.ndim > len(sizes) and not further):
            expected_type = "floating-point" if self.dtype is None else self.dtype
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
    if is_array(value):
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

    >>> check_structure({"sums": np.ones((2, 3))}, {"sums": np.ones((0, 3))})
    >>> check_structure({"sums": np.ones((2, 4))}, {"sums": np.ones((0, 3))})
    Traceback (most recent call last):
    triphase.errors.CorruptState: state.sums is float64 (2, 4) where float64 (0, 3) is expected.
    """
    if isinstance(template, Mapping) and isinstance(found, Mapping):
        if template and found.keys() != template.keys():
            odd = sorted(map(str, found.keys() ^ template.keys()))[0]
            raise CorruptState(f"{where} has {'no' if odd in template else 'a'} field {odd}.")
        for key, item in template.items():
            check_structure(found[key], item, f"{where}.{key}")
    elif is_array(template) and is_array(found):
        fits = found.ndim == template.ndim and found.dtype == template.dtype
        if not fits or any(b not in (0, a) for a, b in zip(found.shape, template.shape, strict=True)):
            raise CorruptState(f"{where} is {_short(found)} where {_short(template)} is expected.")
    elif template is not None and type(found) is not type(template):
        raise CorruptState(f"{where} is {type(found).__name__} where {type(template).__name__} is expected.")


def _check_numbers(array: Any, where: str) -> None:
    if _is_floating_point(array) and not bool(np.isfinite(_numbers(array)).all()):
        raise ValueError(f"{where} holds NaN or infinity")
    if where.endswith("running_var") and bool((_numbers(array) < 0).any()):
        raise ValueError(f"{where} holds negative variances")


def _is_floating_point(array: Any) -> bool:
    return "float" in dtype_name(array)


def _numbers(array: Any) -> NDArray[Any]:
    """As numpy has them; it knows no bfloat16."""
    if isinstance(array, np.ndarray):
        return array
    host = array.detach().cpu()
    return np.asarray(host.float() if dtype_name(host) == "bfloat16" else host)


def _short(array: Any) -> str:
    """A tensor's dtype and sizes, as in "float32 (2, 3)"."""
    return f"{dtype_name(array)} {tuple(array.shape)}"
