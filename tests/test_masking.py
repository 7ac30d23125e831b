"""Tables 1 and 2 as printed, and masked gradients against their closed form."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor, nn
from torch.nn import functional as F

from triphase.errors import InvalidValue
from triphase.maths import block_gradient, harmless, outside
from triphase.maths.masking import gradient_masks

# Rows of the paper's tables: true class, activations of classes 1 to 5; `*` marks a grey (masked) cell.
TABLE_1 = """
4  .30* .20* .30* .15  .05*
4  .20* .30* .20* .25  .05*
2  .10* .70* .10* .05  .05*
2  .05* .70* .10* .10  .05*
1  .65* .15* .10* .05  .05*
2  .05* .80* .05* .05  .05*
3  .10* .10* .65* .10  .05*
"""
TABLE_2 = """
4  .15* .15  .25  .40  .05*
4  .30  .05  .10* .50  .05*
2  .10* .60  .20* .05  .05*
2  .05* .70  .10* .10  .05*
1  .70  .10  .10* .05  .05*
2  .30  .55  .05* .05  .05*
3  .10* .10  .65  .10  .05*
"""


def parse(table: str) -> tuple[Tensor, Tensor, Tensor]:
    rows = [line.split() for line in table.split("\n") if line]
    y = torch.tensor([int(row[0]) - 1 for row in rows])
    f = torch.tensor([[float(cell.rstrip("*")) for cell in row[1:]] for row in rows], dtype=torch.double)
    grey = torch.tensor([[cell.endswith("*") for cell in row[1:]] for row in rows])
    assert f.shape == (7, 5) and torch.allclose(f.sum(1), torch.ones(7, dtype=torch.double))
    return f.log(), y, grey


def test_phase_1_blocks_the_grey_cells_of_table_1() -> None:
    logits, _, grey = parse(TABLE_1)
    assert torch.equal(outside({3}, logits), grey)


def test_phase_2_blocks_the_grey_cells_of_table_2() -> None:
    logits, y, grey = parse(TABLE_2)
    assert torch.equal(outside({1, 3}, logits) & harmless(logits, y, t=0.5), grey)


def test_tpc_masks_as_the_tables_do_and_the_others_as_their_names_say() -> None:
    current, novel = frozenset({1, 3}), frozenset({3})
    for table, phase in ((TABLE_1, 0), (TABLE_2, 1)):
        logits, y, grey = parse(table)
        assert torch.equal(gradient_masks("tpc", novel, current, t=0.5)[phase](logits, y), grey)
        nothing, single, group = (
            gradient_masks(name, novel, current, t=0.5)[phase](logits, y) for name in ("none", "single", "group")
        )
        assert not nothing.any()
        assert single.sum(1).tolist() == [4] * 7 and not single[torch.arange(7), y].any()
        assert torch.equal(group, torch.tensor([[False, False, False, False, True]]).expand(7, 5))


floats = st.floats(-30, 30, width=32)
logit_arrays = hnp.arrays(
    "float64", hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6), elements=floats
)


@given(logit_arrays, st.integers(0, 2**31), st.floats(0, 1))
def test_harmless_is_the_printed_inequality_on_softmax(values: Tensor, seed: int, t: float) -> None:
    logits = torch.as_tensor(values)
    y = torch.randint(logits.shape[1], (len(logits),), generator=torch.Generator().manual_seed(seed))
    f = logits.softmax(1)
    bound = t * f.gather(1, y.view(-1, 1))
    clear = (f - bound).abs() > 1e-9 * bound  # away from the tie, where rounding decides
    assert torch.equal(harmless(logits, y, t)[clear], (f < bound)[clear])


@given(logit_arrays, st.floats(-50, 50), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_masks_do_not_change_when_a_constant_is_added_to_a_row(values: Tensor, c: float, t: float) -> None:
    logits = torch.as_tensor(values).round(decimals=2)
    y = torch.zeros(len(logits), dtype=torch.long)
    near_tie = (logits - logits[:, :1] - torch.tensor(max(t, 1e-300)).log()).abs() < 1e-6
    same = harmless(logits, y, t) == harmless(logits + c, y, t)
    assert bool((same | near_tie).all())
    assert torch.equal(outside({0}, logits), outside({0}, logits + c))


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 5))
def test_masked_gradients_equal_the_closed_form_through_head_and_csf(seed: int, n_mb: int, c: int) -> None:
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n_mb, 4, generator=g, dtype=torch.double)
    A = torch.randn(3, 4, generator=g, dtype=torch.double, requires_grad=True)  # csf: one tanh layer
    W = torch.randn(c, 3, generator=g, dtype=torch.double, requires_grad=True)  # head
    y = torch.randint(c, (n_mb,), generator=g)
    blocked = torch.rand(n_mb, c, generator=g) < 0.5
    f = torch.tanh(z @ A.T)
    logits = f @ W.T
    F.cross_entropy(block_gradient(logits, blocked), y).backward()

    with torch.no_grad():
        G = (logits.softmax(1) - F.one_hot(y, c)) * ~blocked / n_mb
        dA = ((G @ W) * (1 - f**2)).T @ z
    assert W.grad is not None and A.grad is not None
    torch.testing.assert_close(W.grad, G.T @ f.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(A.grad, dA, rtol=1e-10, atol=1e-12)


@given(st.integers(0, 2**31))
def test_masking_changes_neither_logits_nor_loss_and_equals_a_hook(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    x, y = torch.randn(5, 4, generator=g), torch.randint(3, (5,), generator=g)
    blocked = torch.rand(5, 3, generator=g) < 0.5
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    grads = []
    for way in ("where", "hook"):
        net.zero_grad()
        logits = net(x)
        plain = F.cross_entropy(logits, y)
        if way == "where":
            assert torch.equal(block_gradient(logits, blocked), logits)
            loss = F.cross_entropy(block_gradient(logits, blocked), y)
        else:
            logits.register_hook(lambda G: G * ~blocked)
            loss = F.cross_entropy(logits, y)
        assert torch.equal(loss, plain)
        loss.backward()
        grads.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
    assert len(grads[0]) == 4
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@given(logit_arrays, st.integers(0, 5))
def test_the_true_class_is_never_blocked_and_t_0_blocks_nothing(values: Tensor, k: int) -> None:
    logits = torch.as_tensor(values)
    y = torch.full((len(logits),), k % logits.shape[1])
    assert not harmless(logits, y, 1.0).gather(1, y.view(-1, 1)).any()
    assert not harmless(logits, y, 0.0).any()


@pytest.mark.parametrize("t", [-0.1, 1.5, float("nan")])
def test_t_outside_0_to_1_is_refused(t: float) -> None:
    with pytest.raises(InvalidValue, match=r"t must be in \[0, 1\], got"):
        harmless(torch.zeros(1, 2), torch.tensor([0]), t)
