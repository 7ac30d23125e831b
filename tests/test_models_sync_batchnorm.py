"""Normalisation over shards: what torch computes over the whole minibatch, forward and backward."""

import copy

import pytest
import torch
from torch import Tensor, nn

from shared_runs import in_threads
from triphase.errors import InvalidValue
from triphase.models import BatchRenorm2d, SplitClassifier, linear_head
from triphase.models.sync_batchnorm import SyncBatchNorm, synchronize
from triphase.processes import Processes

X = torch.randn(7, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3 + 40
OUT = torch.randn(X.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))  # dL/dy
SHARDS = [X[:4], X[4:4], X[4:]]  # one of them is empty


def layer_for(kind: type[nn.BatchNorm2d]) -> nn.BatchNorm2d:
    layer = kind(3).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([0.5, 1.0, 2.0]))
        layer.bias.copy_(torch.tensor([-1.0, 0.0, 1.0]))
        layer.running_mean.fill_(39.0)  # type: ignore[union-attr]
        layer.running_var.fill_(8.0)  # type: ignore[union-attr]
    return layer


def outcome(model: SplitClassifier, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Output, the gradient of x, those of weight and bias, and the buffers."""
    x = x.clone().requires_grad_()
    y = model.csf[0](x)  # type: ignore[index]
    y.backward(grad)
    assert x.grad is not None
    return (
        y.detach(),
        x.grad,
        [p.grad for p in model.csf.parameters() if p.grad is not None],
        list(model.csf.buffers()),
    )


def model_with(layer: nn.Module) -> SplitClassifier:
    model = SplitClassifier(nn.Identity(), nn.Sequential(layer), linear_head(3, 2)).train()
    model.unfreeze("csf")
    return model


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, BatchRenorm2d])
def test_shards_are_normalised_as_their_minibatch(kind: type[nn.BatchNorm2d]) -> None:
    y, grad_x, grads, buffers = outcome(model_with(layer_for(kind)), X, OUT)

    def shard(processes: Processes) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
        model = model_with(layer_for(kind))
        synchronize(model, processes)
        mine, starts = SHARDS[processes.rank], (0, 4, 4)
        start = starts[processes.rank]
        return outcome(model, mine, OUT[start : start + len(mine)])

    found = in_threads(3, shard)
    torch.testing.assert_close(torch.cat([one[0] for one in found]), y)
    torch.testing.assert_close(torch.cat([one[1] for one in found]), grad_x)
    for i, grad in enumerate(grads):
        torch.testing.assert_close(sum(one[2][i] for one in found), grad)
    for one in found:
        for buffer, expected in zip(one[3], buffers, strict=True):
            torch.testing.assert_close(buffer, expected)


def test_a_single_image_of_all_processes_is_normalised_by_the_running_statistics() -> None:
    expected = layer_for(nn.BatchNorm2d).eval()(X[:1])

    def shard(processes: Processes) -> tuple[Tensor, list[Tensor]]:
        layer = SyncBatchNorm(layer_for(nn.BatchNorm2d), processes)
        return layer(X[:1] if processes.is_first else X[:0]).detach(), list(layer.buffers())

    (y, buffers), (nothing, _) = in_threads(2, shard)
    torch.testing.assert_close(y, expected)
    assert len(nothing) == 0
    for buffer, before in zip(buffers, layer_for(nn.BatchNorm2d).buffers(), strict=True):
        assert torch.equal(buffer, before)


def test_only_what_learns_is_replaced_and_what_cannot_be_is_refused() -> None:
    class Unknown(nn.BatchNorm2d):
        pass

    model = model_with(nn.BatchNorm2d(3))
    before = copy.deepcopy(model.state_dict())
    synchronize(model, Processes())
    assert type(model.csf[0]) is nn.BatchNorm2d, "alone, torch's own layer stays"  # type: ignore[index]
    model.freeze("csf")
    synchronize(model, Processes(0, 2))
    assert type(model.csf[0]) is nn.BatchNorm2d, "a frozen block needs no statistics"  # type: ignore[index]
    model.unfreeze("csf")
    synchronize(model, Processes(0, 2))
    assert isinstance(model.csf[0], SyncBatchNorm)  # type: ignore[index]
    assert model.state_dict().keys() == before.keys()
    with pytest.raises(InvalidValue, match="cannot train a layer Unknown"):
        synchronize(model_with(Unknown(3)), Processes(0, 2))
