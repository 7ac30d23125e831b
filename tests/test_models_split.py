"""SplitClassifier: frozen means frozen, growing keeps the past, one image is enough."""

import pytest
import torch
from torch import Tensor, nn

from triphase.errors import InvalidValue, TriphaseWarning
from triphase.models import Normalize, SplitClassifier, linear_head
from triphase.models.split import Block


def small_model(n_classes: int = 3) -> SplitClassifier:
    torch.manual_seed(0)
    llf = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU())
    csf = nn.Sequential(nn.Conv2d(4, 5, 4), nn.BatchNorm2d(5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = SplitClassifier(llf, csf, linear_head(5, n_classes), image_size=8)
    nn.init.normal_(model.head.weight)
    return model


def pixels(n: int) -> Tensor:
    return torch.randint(256, (n, 1, 8, 8), generator=torch.Generator().manual_seed(1)).to(torch.uint8)


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("block", ["llf", "csf"])
def test_frozen_block_gets_no_gradient_and_keeps_its_statistics(block: Block) -> None:
    model = small_model()
    model.freeze(block)
    before = snapshot(getattr(model, block))
    model.train()
    model(pixels(6)).square().sum().backward()
    assert all(p.grad is None for p in getattr(model, block).parameters())
    assert same(before, snapshot(getattr(model, block)))
    assert model.training and not getattr(model, block).training
    assert model.head.weight.grad is not None


def test_unfrozen_block_learns_again() -> None:
    model = small_model().train()
    model.freeze("csf")
    model.unfreeze("csf")
    before = snapshot(model.csf)
    model(pixels(6)).square().sum().backward()
    assert all(p.grad is not None for p in model.csf.parameters())
    assert not same(before, snapshot(model.csf))


def test_unfreeze_in_evaluation_mode_keeps_that_mode() -> None:
    model = small_model().eval()
    model.freeze("csf")
    model.unfreeze("csf")
    assert not model.csf.training and not model.is_frozen("csf")


def test_block_without_parameters_counts_as_frozen() -> None:
    model = SplitClassifier(Normalize((127.5,), (127.5,)), nn.Flatten(), linear_head(4, 2))
    assert model.is_frozen("llf")
    assert not model.is_frozen("head")


def test_unknown_block_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="'tail'.*llf, csf, head"):
        small_model().freeze("tail")  # type: ignore[arg-type]


def test_growing_keeps_old_rows_and_appends_zeros() -> None:
    model = small_model(3)
    old = model.head.weight.detach().clone()
    model.grow(7)
    assert model.n_classes == 7
    assert torch.equal(model.head.weight[:3], old)
    assert not model.head.weight[3:].any()
    assert model(pixels(2)).shape == (2, 7)


def test_growing_a_frozen_head_leaves_it_frozen() -> None:
    model = small_model(3)
    model.freeze("head")
    model.grow(4)
    assert not model.head.weight.requires_grad


def test_a_dropped_class_leaves_the_rows_of_the_others_and_their_gradient() -> None:
    head = linear_head(3, 4)
    with torch.no_grad():
        head.weight.copy_(torch.arange(12.0).view(4, 3))
    model = SplitClassifier(nn.Identity(), nn.Identity(), head)
    model.drop_class(1)
    assert model.n_classes == 3 and model.head.weight[:, 0].tolist() == [0.0, 6.0, 9.0]
    assert model.head.weight.requires_grad
    model.freeze("head")
    model.drop_class(2)
    model.drop_class(7)  # a class without a row
    assert model.head.weight[:, 0].tolist() == [0.0, 6.0] and not model.head.weight.requires_grad


def test_growing_never_shrinks() -> None:
    model = small_model(3)
    old = model.head.weight
    model.grow(2)
    assert model.head.weight is old and model.n_classes == 3


def test_one_image_trains_without_touching_the_statistics() -> None:
    model = small_model().train()  # csf's BatchNorm sees 1 x 1 pixel: torch alone would refuse
    before = {name: value.clone() for name, value in model.named_buffers()}
    logits = model(pixels(1))
    logits.sum().backward()
    assert all(torch.equal(before[name], value) for name, value in model.named_buffers())
    assert all(layer.training for layer in model.modules())
    assert model.csf[0].weight.grad is not None  # type: ignore[index]
    assert torch.equal(logits, model.eval()(pixels(1)))


def test_one_image_with_a_fault_leaves_the_mode_as_it_was() -> None:
    model = small_model().train()
    with pytest.raises(RuntimeError):
        model.features(torch.zeros(1, 9, 4, 4))
    assert all(layer.training for layer in model.modules())


def test_uint8_and_float_pixels_are_the_same() -> None:
    model = small_model().eval()
    assert torch.equal(model(pixels(3)), model(pixels(3).float()))


def test_features_in_bfloat16_are_close_and_come_back_as_float32() -> None:
    model = small_model().eval()
    z = model.encode(pixels(3))
    plain = model.features(z)
    model.accelerate(precision="bfloat16")
    half = model.features(z)
    assert half.dtype == torch.float32 and not torch.equal(half, plain)
    torch.testing.assert_close(half, plain, rtol=0.05, atol=0.05)


def test_on_the_cpu_llf_computes_in_bfloat16_only_while_it_learns() -> None:
    model = small_model().eval()
    plain = model.encode(pixels(3))
    model.accelerate(precision="bfloat16")
    half = model.encode(pixels(3))
    assert half.dtype == torch.float32 and not torch.equal(half, plain)
    torch.testing.assert_close(half, plain, rtol=0.05, atol=0.05 * float(plain.detach().abs().max()))
    model.freeze("llf")
    assert torch.equal(model.encode(pixels(3)), plain), "stored latents stay exact"


def test_a_device_without_autocast_computes_all_the_same() -> None:
    model = small_model().to("meta")
    assert model.features(torch.zeros(2, 4, 4, 4, device="meta")).shape == (2, 5)


def test_bias_in_the_head_warns() -> None:
    with pytest.warns(TriphaseWarning, match="bias"):
        model = SplitClassifier(nn.Identity(), nn.Flatten(), nn.Linear(4, 2))
    model.grow(3)
    assert model.head.bias.shape == (3,) and not model.head.bias[2]


def test_head_without_classes_is_empty_and_negative_counts_are_refused() -> None:
    assert linear_head(4, 0)(torch.zeros(2, 4)).shape == (2, 0)
    with pytest.raises(InvalidValue, match="at least 0, got -1"):
        linear_head(4, -1)
