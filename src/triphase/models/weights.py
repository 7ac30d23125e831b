"""Read weight files without running any code in them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from triphase.errors import BadData, few


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file or of a checkpoint of torch.save (.pth, .pt, .tar).

    A checkpoint may nest them under "state_dict"; the prefix `module.` of nn.DataParallel is dropped.
    """
    if not path.is_file():
        raise BadData(f"There is no weight file {path}.")
    try:
        safe = path.suffix == ".safetensors"
        content: Any = load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can end in almost any of them
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise BadData(f"{path} cannot be read as a weight file: {reason}") from error
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise BadData(f"{path} holds no state dict: a weight file maps names to tensors.")
    return {str(key).removeprefix("module."): value for key, value in content.items()}


def fill_(targets: Mapping[str, Tensor], weights: Mapping[str, Tensor], path: Path) -> None:
    """Copy each weight into the target of the same name, in place; both must have the same names.

    Only `num_batches_tracked` may be absent: checkpoints older than torch 0.4.1 lack it.

    >>> w = torch.zeros(2)
    >>> fill_({"w": w}, {"w": torch.ones(2)}, Path("some.pth"))
    >>> w
    tensor([1., 1.])
    """
    missing = [k for k in targets if k not in weights and not k.endswith("num_batches_tracked")]
    unknown = [k for k in weights if k not in targets]
    shared = [k for k in targets if k in weights]
    misfits = [
        f"{k} {tuple(weights[k].shape)} instead of {tuple(targets[k].shape)}"
        for k in shared
        if weights[k].shape != targets[k].shape
    ]
    faults = [("it lacks", missing), ("it has besides", unknown), ("it has with another shape", misfits)]
    found = [f"{what} {few(names)}" for what, names in faults if names]
    if found:
        raise BadData(f"{path} does not fit this network: {'; '.join(found)}.")
    with torch.no_grad():
        for key in shared:
            targets[key].copy_(weights[key])
