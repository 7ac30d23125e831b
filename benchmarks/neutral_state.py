"""What learners have saved as flat names and values, read from the files alone, whichever commit wrote them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

Leaf = Tensor | float | str | bool | None


@dataclass(frozen=True)
class Difference:
    """One value that is not the same."""

    name: str
    what: str
    relative: float = math.inf  # the largest difference by the largest value; infinite where there is none


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Leaf]]:
    """Nested dicts and lists as pairs of a path and a value.

    >>> dict(flat({"a": [1, {"b": 2.5}], "c": None}))
    {'a/0': 1, 'a/1/b': 2.5, 'c': None}
    """
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if pairs is None:
        yield name, value
    else:
        for key, item in pairs:
            yield from flat(item, f"{name}/{key}" if name else str(key))


def read_state(path: Path) -> Any:
    """One safetensors file: the tree in its header with its tensors put back, or the tensors alone."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata() or {}
    return _join(json.loads(metadata["tree"]), tensors) if "tree" in metadata else tensors


def _join(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, dict):
        if set(tree) == {"$tensor"}:
            return tensors[tree["$tensor"]]
        return {key: _join(item, tensors) for key, item in tree.items()}
    return [_join(item, tensors) for item in tree] if isinstance(tree, list) else tree


def read_run(folder: Path, checkpoint: Path) -> dict[str, Leaf]:
    """The final weights of a run, and the whole learner as its last checkpoint holds it."""
    values = dict(flat(read_state(folder / "weights.safetensors"), "weights"))
    parts = json.loads((checkpoint / "index.json").read_text())["parts"]
    for name, file in parts.items():
        values |= flat(_part(read_state(checkpoint / file)), name)
    return values


def read_model(folder: Path) -> dict[str, Leaf]:
    """Every version that a model keeps, under `version N`."""
    values: dict[str, Leaf] = {}
    for file in sorted((folder / "versions").glob("*.json")):
        document = json.loads(file.read_text())
        version = f"version {int(file.stem)}"
        values[f"{version}/parent"] = document["parent"]
        for name, part in document["parts"].items():
            values |= flat(
                _part(read_state(folder / "parts" / f"{part['sha256']}.safetensors")), f"{version}/{name}"
            )
    return values


def _part(value: Any) -> Any:
    return value["part"] if isinstance(value, dict) and set(value) == {"part"} else value


def renamed(values: dict[str, Leaf], table: dict[str, str]) -> dict[str, Leaf]:
    """The same values under the names that regular expressions make of the old ones."""
    result = {}
    for name, value in values.items():
        for pattern, replacement in table.items():
            name = re.sub(pattern, replacement, name)
        result[name] = value
    return result


def compare(old: dict[str, Leaf], new: dict[str, Leaf]) -> list[Difference]:
    """What differs, bit by bit; a value that only the new one has is no difference."""
    found = []
    for name, value in old.items():
        one = Difference(name, "missing") if name not in new else difference(name, value, new[name])
        found += [one] if one else []
    return found


def difference(name: str, old: Leaf, new: Leaf) -> Difference | None:
    """None if both are the same to the last bit (not a number equals itself), else by how much they differ."""
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        return _tensor_difference(name, old, new)
    if type(old) is type(new) and (old == new or (old != old and new != new)):
        return None
    what = f"{_shown(old)} became {_shown(new)}"
    if isinstance(old, float) and isinstance(new, float):
        return Difference(name, what, abs(old - new) / max(abs(old), abs(new)))
    return Difference(name, what)


def _tensor_difference(name: str, old: Tensor, new: Tensor) -> Difference | None:
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return Difference(name, f"{_shown(old)} became {_shown(new)}")
    if torch.equal(_bytes(old), _bytes(new)):
        return None
    if not old.dtype.is_floating_point:
        return Difference(name, f"{int((old != new).sum())} of {old.numel()} values differ")
    largest = (old.double() - new.double()).abs().max().item()
    size = max(old.double().abs().max().item(), new.double().abs().max().item())
    return Difference(name, f"largest difference {largest:.3g}", largest / size if size else 0.0)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _shown(value: Leaf) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
