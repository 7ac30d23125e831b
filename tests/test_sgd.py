"""Gradient descent: the same numbers as torch's own optimiser, without loading torch's compiler."""

import copy
import subprocess
import sys

import pytest
import torch

from triphase.learners.sgd import SGD
from triphase.randomness import generator


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_every_step_is_torchs_bit_for_bit(momentum: float) -> None:
    random = generator(0, "sgd")
    ours = [torch.randn(shape, generator=random).requires_grad_() for shape in ((3, 2), (4,), (1,), (5,))]
    torchs = copy.deepcopy(ours)

    def groups(p: list[torch.Tensor]) -> list[dict[str, object]]:
        return [
            {"params": p[:2], "lr": 0.1, "weight_decay": 0.01},
            {"params": p[2:], "lr": 0.3, "weight_decay": 0.0},
        ]

    one, other = SGD(groups(ours), momentum), torch.optim.SGD(groups(torchs), lr=1.0, momentum=momentum)
    for step in range(4):
        for a, b in zip(ours[: 3 if step % 2 else 4], torchs, strict=False):  # one of them rests now and then
            a.grad = torch.randn(a.shape, generator=random)
            b.grad = a.grad.clone()
        one.step()
        other.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, torchs, strict=True))
        one.zero_grad()
        other.zero_grad()
        assert all(p.grad is None for p in ours)


def test_a_lesson_does_not_wait_for_the_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from triphase.models import build\n"
        "from triphase.learners.training import TrainingLoop\n"
        "from triphase.data.recipe import Recipe\n"
        "from triphase.learners.training import sgd_step\n"
        "model = build('resnet32', 3, image_size=32)\n"
        "optimizer = TrainingLoop().optimizer(model, Recipe())\n"
        "sgd_step(optimizer, model(torch.rand(2, 3, 32, 32)).square().sum())\n"
        "print(*{'torch._dynamo', 'sympy'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
