"""An accelerator that is none: tensors claim to be there, are computed on the CPU, and may not meet the host's.

A torch that is built for the CPU has no stand-in for CUDA, so the device is called "meta": the only other one that
autograd accepts there. A mode catches whatever is created on it or copied to it, and hands out tensors that claim
to be there and hold their values on the CPU. As on MPS, nothing there is of double precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

FAKE = torch.device("meta")
COPY, TO = torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default


class OnDevice(Tensor):
    """A tensor that claims to be on the fake device; `host` has its values."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> OnDevice:
        assert host.dtype != torch.float64, "double precision on a device that may have none"
        made: OnDevice = Tensor._make_wrapper_subclass(
            cls, host.shape, host.stride(), host.storage_offset(), dtype=host.dtype, device=FAKE
        )
        made.host = host
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        return computed(func, args, kwargs or {})


class FakeDevice(TorchDispatchMode):
    """Inside, FAKE is a device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of an operation, on the device of its arguments; two devices may not meet but in a copy."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there = [isinstance(tensor, OnDevice) for tensor in tensors]
    if any(there) and func not in (COPY, TO):  # scalars may come along from anywhere
        strays = [tensor for tensor, on in zip(tensors, there, strict=True) if not on and tensor.dim() > 0]
        assert not strays, f"{func} of tensors on two devices, {tuple(strays[0].shape)} on the host"
    device = kwargs.get("device")
    on_device = any(there) if device is None else torch.device(device) == FAKE
    kwargs = kwargs if device is None else kwargs | {"device": torch.device("cpu")}
    hosts, named = tree_map(lambda leaf: leaf.host if isinstance(leaf, OnDevice) else leaf, (args, kwargs))
    result = func(*hosts, **named)
    if func._schema.is_mutable:  # what was written to is returned as it came
        owner = {id(tensor.host): tensor for tensor in tensors if isinstance(tensor, OnDevice)}
        return tree_map(lambda leaf: owner.get(id(leaf), leaf), result)
    if not on_device:
        return result
    return tree_map(lambda leaf: OnDevice(leaf) if isinstance(leaf, Tensor) else leaf, result)
