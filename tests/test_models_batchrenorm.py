"""Batch renormalisation: BatchNorm at its limits, and Ioffe's formula in between."""

import pytest
import torch
from torch import Tensor, nn

from triphase.errors import InvalidValue
from triphase.models import BatchRenorm2d, SplitClassifier, linear_head, with_batch_renorm


def batch(seed: int = 0, n: int = 6) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(n, 4, 3, 3, generator=draw) + torch.arange(4.0).view(1, 4, 1, 1)


def batchnorm(momentum: float = 0.01) -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(4, momentum=momentum)
    with torch.no_grad():
        for i, values in enumerate((layer.weight, layer.bias, layer.running_mean, layer.running_var)):
            assert values is not None
            values.copy_(torch.rand(4, generator=torch.Generator().manual_seed(i)) + 0.5)
    return layer


def renorm(r_max: float = 1.25, d_max: float = 0.5) -> BatchRenorm2d:
    layer = BatchRenorm2d(4, r_max=r_max, d_max=d_max)
    layer.load_state_dict(batchnorm().state_dict(), strict=False)
    return layer


def test_evaluation_is_batchnorms() -> None:
    torch.testing.assert_close(renorm().eval()(batch()), batchnorm().eval()(batch()))


def test_without_room_training_is_batchnorms_gradients_and_statistics_included() -> None:
    ours, torchs = renorm(r_max=1, d_max=0).train(), batchnorm().train()
    results = []
    for layer in (ours, torchs):
        x = batch().requires_grad_()
        y = layer(x)
        (y * torch.arange(y.numel()).view_as(y)).sum().backward()
        results.append([y, x.grad, layer.weight.grad, layer.bias.grad, layer.running_mean, layer.running_var])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)
    assert ours.num_batches_tracked == torchs.num_batches_tracked == 1


def test_with_unlimited_room_training_uses_the_running_statistics() -> None:
    layer = renorm(r_max=1e6, d_max=1e6)
    expected = batchnorm().eval()(batch())
    torch.testing.assert_close(layer.train()(batch()), expected, rtol=1e-4, atol=1e-5)


def test_limits_clip_as_in_the_formula() -> None:
    layer, x = renorm(), batch()
    assert layer.running_mean is not None and layer.running_var is not None
    mean, std = x.mean((0, 2, 3)), (x.var((0, 2, 3), correction=0) + layer.eps).sqrt()
    running = (layer.running_var + layer.eps).sqrt()
    r = (std / running).clamp(1 / 1.25, 1.25)
    d = ((mean - layer.running_mean) / running).clamp(-0.5, 0.5)
    assert (r == 1.25).any() and (d.abs() == 0.5).any()  # the example does reach the limits
    mean, std, r, d, w, b = (v.view(1, 4, 1, 1) for v in (mean, std, r, d, layer.weight, layer.bias))
    torch.testing.assert_close(layer.train()(x), ((x - mean) / std * r + d) * w + b)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_activations_in_half_precision_are_normalised_by_statistics_in_full(half: torch.dtype) -> None:
    x = torch.randn(64, 3, 4, 4, generator=torch.Generator().manual_seed(0)).to(half).requires_grad_()
    layer, plain = BatchRenorm2d(3), BatchRenorm2d(3)
    y, expected = layer(x), plain(x.float())
    y.float().square().sum().backward()
    assert y.dtype == half and torch.allclose(y.float(), expected, atol=0.05)
    assert torch.equal(layer.running_mean, plain.running_mean) and torch.equal(layer.running_var, plain.running_var)
    assert x.grad is not None and bool(x.grad.isfinite().all()) and layer.weight.grad is not None


def test_limits_and_momentum_travel_in_the_state_dict() -> None:
    layer = renorm(r_max=2, d_max=3)
    layer.momentum.fill_(5e-5)
    layer.train()(batch())
    other = BatchRenorm2d(4)
    other.load_state_dict(layer.state_dict())
    assert [other.r_max.item(), other.d_max.item()] == [2, 3]
    assert torch.equal(other.momentum, torch.tensor(5e-5))
    assert torch.equal(other.train()(batch(1)), layer.train()(batch(1)))
    assert torch.equal(other.running_mean, layer.running_mean)


def test_swapping_keeps_parameters_statistics_and_mode() -> None:
    old = batchnorm().eval()
    block = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Sequential(old, nn.ReLU()))
    expected = block(batch())
    assert with_batch_renorm(block) is block
    new = block.get_submodule("1.0")
    assert isinstance(new, BatchRenorm2d) and not new.training
    assert new.weight is old.weight and new.bias is old.bias
    assert torch.equal(block(batch()), expected)
    assert with_batch_renorm(block).get_submodule("1.0") is new


def test_layer_without_weights_cannot_be_swapped() -> None:
    with pytest.raises(InvalidValue, match="weights and running statistics"):
        with_batch_renorm(nn.Sequential(nn.BatchNorm2d(4, affine=False)))


@pytest.mark.parametrize(("r_max", "d_max"), [(0.9, 0.5), (1.25, -1)])
def test_impossible_limits_are_refused(r_max: float, d_max: float) -> None:
    with pytest.raises(InvalidValue, match="at least 1 and d_max at least 0"):
        BatchRenorm2d(4, r_max=r_max, d_max=d_max)


def test_frozen_block_and_single_image_leave_it_alone() -> None:
    csf = nn.Sequential(renorm(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = SplitClassifier(nn.Identity(), csf, linear_head(4, 2)).train()
    before = {name: value.clone() for name, value in model.named_buffers()}
    model.tail(batch(n=1)[..., :1, :1])
    model.freeze("csf")
    model.train().tail(batch())
    assert all(torch.equal(before[name], value) for name, value in model.named_buffers())
    model.unfreeze("csf")
    model.tail(batch())
    assert not torch.equal(before["csf.0.running_mean"], model.get_buffer("csf.0.running_mean"))
