"""What must be equal on all nodes for their results to be equal: the code and what computes."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy
import torch

PACKAGE = Path(__file__).parents[3]  # triphase itself


@cache
def versions() -> Mapping[str, str]:
    """The versions of this computer."""
    return {
        "triphase": f"{version('triphase')} (code {_code_checksum()})",
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def difference(expected: Mapping[str, str], node: str) -> str | None:
    """A sentence about what this node has in another version than expected; None if nothing."""
    for name, here in versions().items():
        if expected.get(name) != here:
            return (
                f"Node {node} of the cluster has {name} {here}, and the sweep was begun with {expected.get(name)}: "
                "results would not be comparable. Install the same on all nodes, and run again to continue."
            )
    return None


def _code_checksum() -> str:
    """Of all modules of triphase, which its version does not tell apart while it is developed."""
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
