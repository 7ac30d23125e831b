"""torchvision beside a build of torch that its compiled operators do not fit, such as torch for the CPU alone."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch


@cache  # the library must live as long as its operators
def declare_torchvision_operators() -> torch.library.Library | None:
    """Declare the operators that torchvision needs to be imported, if its compiled ones cannot be loaded.

    That suffices for programs that import torchvision only because another library does.
    """
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return None
    try:
        import_module("torchvision")
        return None
    except RuntimeError:  # operator torchvision::nms does not exist
        source = (Path(spec.origin).parent / "_meta_registrations.py").read_text()
        library = torch.library.Library("torchvision", "DEF")
        for name in sorted(set(re.findall(r'register_(?:meta|fake)\("(?:torchvision::)?(\w+)"\)', source))):
            library.define(f"{name}(Tensor a) -> Tensor")
        return library
