"""f = head . csf . llf (Eq. 6 of the paper), whose blocks can be frozen."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from triphase.context import Context
from triphase.errors import InvalidValue, TriphaseWarning
from triphase.processes import Processes

Block = Literal["llf", "csf", "head"]
Precision = Literal["float32", "bfloat16", "float16"]
BLOCKS: tuple[Block, ...] = ("llf", "csf", "head")
ALONE = Processes()


class Normalize(nn.Module):
    """(x - mean) / std per channel, for pixels in 0..255."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class SplitClassifier(nn.Module):
    """An image classifier in three blocks: low-level features, class-specific features, linear head.

    `llf` takes pixels 0..255 (uint8 or float, NCHW), `csf` turns its output into (n, D) features, and `head`
    is linear without bias: row j is Theta_c_j, the parameters that belong to class j alone. `image_size` is
    the side that the network expects, in pixels.

    >>> model = SplitClassifier(nn.Identity(), nn.Flatten(), linear_head(4, 0))
    >>> model.grow(3)
    >>> model(torch.zeros(5, 1, 2, 2)).shape
    torch.Size([5, 3])
    """

    def __init__(self, llf: nn.Module, csf: nn.Module, head: nn.Linear, *, image_size: int | None = None) -> None:
        super().__init__()
        if head.bias is not None:
            warnings.warn(
                "The head has a bias, which bias correction cannot reach (Eq. 9 normalises weights only); "
                "use nn.Linear(..., bias=False).",
                TriphaseWarning,
                stacklevel=2,
            )
        self.llf, self.csf, self.head = llf, csf, head
        self.image_size = image_size
        self.random_layers: tuple[str, ...] = ()  # left at random by the weight file that filled the rest
        self._frozen: set[str] = set()
        self.precision: Precision = "float32"

    @property
    def n_classes(self) -> int:
        """The number of rows of the head."""
        return self.head.out_features

    @property
    def n_features(self) -> int:
        """D, the length of a head row."""
        return self.head.in_features

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.head.weight.device

    def encode(self, x: Tensor, llf: nn.Module | None = None) -> Tensor:
        """z = llf(x) for pixels in 0..255; `llf` may be another form of the block (see `folded`)."""
        x = x.to(self.device).float()
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        latents_stay_exact = self.device.type == "cpu" and self.is_frozen("llf")
        half = nullcontext() if latents_stay_exact else self._autocast()
        with _running_statistics(self.llf, only_if=len(x) == 1), half:
            z: Tensor = (self.llf if llf is None else llf)(x)
        return z.float()

    def features(self, z: Tensor) -> Tensor:
        """csf(z), of shape (n, D)."""
        with _running_statistics(self.csf, only_if=len(z) == 1), self._autocast():
            f: Tensor = self.csf(z)
        return f if self.precision == "float32" else f.float()

    def tail(self, z: Tensor) -> Tensor:
        """head(csf(z)), the logits."""
        logits: Tensor = self.head(self.features(z))
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """tail(llf(x))."""
        return self.tail(self.encode(x))

    def accelerate(self, *, precision: Precision = "float32", compiled: bool = False) -> None:
        """Let the network compute in half precision (parameters stay float32), or csf as compiled code.

        On the CPU a frozen llf stays in float32: latents are stored, and computed once. Whether it pays
        depends on the machine: benchmarks/results/speed.md has figures and advice.
        """
        if precision not in get_args(Precision):
            raise InvalidValue(f"precision must be one of {', '.join(get_args(Precision))}, got {precision!r}.")
        self.precision = precision
        if compiled:
            self.csf.compile()

    def freeze(self, block: Block) -> None:
        """No gradient reaches the block and its BatchNorm statistics stay, whatever `train` says."""
        self._block(block).requires_grad_(False).eval()
        self._frozen.add(block)

    def unfreeze(self, block: Block) -> None:
        """Let the block learn again; it takes on the mode of the whole model."""
        self._frozen.discard(block)
        module = self._block(block)
        module.requires_grad_(True).train(self.training)

    def is_frozen(self, block: Block) -> bool:
        """Whether the block is constant: frozen, or without any parameter or buffer that could move."""
        return block in self._frozen or not self._block(block).state_dict()

    def train(self, mode: bool = True) -> "SplitClassifier":
        """As in torch, except that frozen blocks stay in evaluation mode."""
        super().train(mode)
        for block in self._frozen:
            getattr(self, block).eval()
        return self

    def grow(self, n: int) -> None:
        """Give the head n rows; the new ones are zero and the old ones keep their values."""
        if n <= self.n_classes:
            return
        self.head.out_features = n
        for name, old in list(self.head.named_parameters()):
            setattr(self.head, name, nn.Parameter(pad_rows(old.detach(), n), requires_grad=old.requires_grad))

    def drop_class(self, label: int) -> None:
        """Take the row of one class out of the head, if it has one; later rows move up by one."""
        if label >= self.n_classes:
            return
        for name, old in list(self.head.named_parameters()):
            rows = drop_row(old.detach(), label)
            setattr(self.head, name, nn.Parameter(rows, requires_grad=old.requires_grad))
        self.head.out_features -= 1

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, getattr(torch, self.precision))

    def _block(self, block: str) -> nn.Module:
        if block not in BLOCKS:
            raise InvalidValue(f"No block is called {block!r}; there are {', '.join(BLOCKS)}.")
        module: nn.Module = getattr(self, block)
        return module


def placed(model: SplitClassifier, context: Context) -> SplitClassifier:
    """The model on the device that the context names, if it names one."""
    return model if context.device is None else model.to(context.device)


def linear_head(n_features: int, n_classes: int) -> nn.Linear:
    """A head without bias whose rows are all zero: no class has been seen yet.

    >>> linear_head(4, 0).weight.shape
    torch.Size([0, 4])
    """
    if n_classes < 0:
        raise InvalidValue(f"n_classes must be at least 0, got {n_classes}.")
    head = nn.Linear(n_features, 1, bias=False, device="meta")  # draws nothing from the global generator
    head.out_features = n_classes
    head.weight = nn.Parameter(torch.zeros(n_classes, n_features))
    return head


def pad_rows(rows: Tensor, n: int) -> Tensor:
    """At least n rows: zeros are appended.

    >>> pad_rows(torch.ones(1, 2), 2)
    tensor([[1., 1.],
            [0., 0.]])
    """
    return torch.cat([rows, rows.new_zeros(max(0, n - len(rows)), *rows.shape[1:])])


def drop_row(rows: Tensor, row: int) -> Tensor:
    """All rows but one.

    >>> drop_row(torch.arange(3), 1)
    tensor([0, 2])
    """
    return torch.cat([rows[:row], rows[row + 1 :]])


@contextmanager
def _running_statistics(module: nn.Module, only_if: bool) -> Iterator[None]:
    """Let normalisation layers use their running statistics: one image has no statistics of its own.

    Layers that several processes share count the images of all of them, and do it by themselves.
    """
    training = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.training] if only_if else []
    training = [m for m in training if getattr(m, "processes", ALONE).size == 1]
    for layer in training:
        layer.eval()
    try:
        yield
    finally:
        for layer in training:
            layer.train()
