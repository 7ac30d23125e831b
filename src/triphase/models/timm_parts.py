"""A network of timm taken apart: the parts that it calls in a row, and the two halves made of them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

TOLERANCE = 1e-4  # largest difference between a network and its two halves, relative to the largest feature


@dataclass(frozen=True)
class Part:
    """A module that a network calls, and its arguments beside the input."""

    name: str
    module: nn.Module
    arguments: Mapping[str, Any]


class Skip(nn.Module):
    """The identity, in place of a part that was removed."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return x


class Features(nn.Module):
    """What a network computes before its head, without the parts that were removed."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network: Any = network

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.network.forward_features(x)
        return features


class PreLogits(nn.Module):
    """The head of a network up to its classifier."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network: Any = network

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.network.forward_head(x, pre_logits=True)
        return features


class WithArguments(nn.Module):
    """A part that is called with fixed further arguments, such as a position embedding."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.module, self.names = part.module, tuple(part.arguments)
        for name, value in part.arguments.items():
            if isinstance(value, Tensor):
                self.register_buffer(f"argument_{name}", value.clone(), persistent=False)
            else:
                setattr(self, f"argument_{name}", value)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.module(x, **{name: getattr(self, f"argument_{name}") for name in self.names})
        return output


class Permute(nn.Module):
    """Feature maps with their axes in another order."""

    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.axes = axes

    def extra_repr(self) -> str:
        return str(self.axes)

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.axes)


def parts_called(network: nn.Module, run: Callable[[Tensor], Tensor], x: Tensor) -> list[Part]:
    """The parts that a network calls, in their order; chains and lists of modules count as their members."""
    called: dict[str, Part] = {}

    def note(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = dict(zip(inspect.signature(module.forward).parameters, args, strict=False)) | kwargs
            others = list(given.items())[1:]
            called[name] = Part(name, module, {key: value for key, value in others if value is not None})

        return hook

    members = _members(network).items()
    hooks = [module.register_forward_pre_hook(note(name), with_kwargs=True) for name, module in members]
    try:
        run(x)
    finally:
        for hook in hooks:
            hook.remove()
    return list(called.values())


def _members(module: nn.Module, prefix: str = "") -> dict[str, nn.Module]:
    found: dict[str, nn.Module] = {}
    for name, child in module.named_children():
        plain = isinstance(child, nn.ModuleList) or type(child).forward is nn.Sequential.forward
        found |= _members(child, f"{prefix}{name}.") if plain else {f"{prefix}{name}": child}
    return found


def halves(network: Any, parts: Sequence[Part], n_before: int, x: Tensor) -> tuple[nn.Sequential, nn.Sequential]:
    """llf and csf, made of the modules of the network, which is taken apart."""
    with torch.no_grad():
        in_head = {part.name for part in parts_called(network, network.forward_head, network.forward_features(x))}
    for part in parts:
        _replace_(network, part.name, Skip())
    head = copy.deepcopy(network)
    for name in [name for name in _members(head) if name not in in_head]:
        _replace_(head, name, Skip())
    for name in dict(head.named_parameters(recurse=False)):  # of tokens and positions
        setattr(head, name, None)
    for name in in_head:
        _replace_(network, name, Skip())
    for part in parts[:n_before]:
        _replace_(network, part.name, part.module)
    after = [WithArguments(part) if part.arguments else part.module for part in parts[n_before:]]
    llf, csf = nn.Sequential(Features(network)), nn.Sequential(*after, PreLogits(head))
    if getattr(network, "output_fmt", "") == "NHWC":
        return llf.append(Permute(0, 3, 1, 2)), nn.Sequential(Permute(0, 2, 3, 1), csf)
    return llf, csf


def _replace_(network: nn.Module, name: str, module: nn.Module) -> None:
    owner, _, own = name.rpartition(".")
    setattr(network.get_submodule(owner), own, module)


@torch.no_grad()
def compute_the_same(llf: nn.Module, csf: nn.Module, x: Tensor, expected: Tensor) -> bool:
    """Whether the halves give the output of the network, for the same images."""
    try:
        difference = (csf(llf(x)) - expected).abs().max()
    except (RuntimeError, TypeError, ValueError, AttributeError):
        return False
    return bool(difference <= TOLERANCE * expected.abs().max())
