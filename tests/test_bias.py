"""L_BC and Eq. 9 against independent derivations."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from triphase.errors import InvalidValue
from triphase.maths import bias_correction_loss, normalize_, stable_lr

rows_arrays = hnp.arrays(
    "float64", st.tuples(st.integers(1, 5), st.integers(2, 9)), elements=st.floats(-2, 2, width=32)
)
stds = st.sampled_from([0.01, 0.05, 0.3, 1.0])


@given(rows_arrays, stds, st.sampled_from([1e-8, 1e-4, 1e-2]))
def test_the_value_is_eq_10_term_by_term(rows: np.ndarray, s: float, eps: float) -> None:
    total = 0.0
    for row in rows.tolist():
        mu = sum(row) / len(row)
        sigma2 = sum((w - mu) ** 2 for w in row) / len(row)
        total += (mu / s) ** 2 + sigma2 / s**2 - math.log(sigma2 / s**2 + eps) - 1
    expected = total / (2 * len(rows))
    assert bias_correction_loss(torch.as_tensor(rows), s, eps).item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(st.floats(-1, 1), st.floats(0.01, 2), stds)
def test_without_eps_it_is_the_kl_divergence_of_two_normals(mu: float, sigma: float, s: float) -> None:
    row = mu + sigma * torch.tensor([[1.0, -1.0]], dtype=torch.double)  # mean mu, population std sigma
    P, Q = torch.distributions.Normal(mu, sigma), torch.distributions.Normal(0.0, s)
    kl = torch.distributions.kl_divergence(P, Q).item()
    assert bias_correction_loss(row, s, eps=0.0).item() == pytest.approx(kl, rel=1e-4, abs=1e-5)


@given(rows_arrays, stds, st.sampled_from([1e-8, 1e-4, 1e-2]))
def test_the_gradient_is_the_closed_form(rows: np.ndarray, s: float, eps: float) -> None:
    W = torch.tensor(rows, requires_grad=True)
    bias_correction_loss(W, s, eps).backward()
    n, D = rows.shape
    mu, sigma2 = rows.mean(1, keepdims=True), rows.var(1, keepdims=True)
    expected = (mu + (1 - 1 / (sigma2 / s**2 + eps)) * (rows - mu)) / (n * D * s**2)
    assert W.grad is not None
    np.testing.assert_allclose(W.grad.numpy(), expected, rtol=1e-7, atol=1e-9 * max(1, np.abs(expected).max()))


def test_zero_rows_count_in_the_mean_and_have_no_gradient() -> None:
    W = torch.zeros(4, 8, requires_grad=True)
    loss = bias_correction_loss(W, s=0.05, eps=1e-4)
    loss.backward()
    assert loss.item() == pytest.approx((-math.log(1e-4) - 1) / 2, rel=1e-6)
    assert W.grad is not None and torch.equal(W.grad, torch.zeros(4, 8))


def test_no_rows_give_zero() -> None:
    assert bias_correction_loss(torch.zeros(0, 8), s=0.05).item() == 0


@given(rows_arrays, stds, st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
def test_normalize_gives_mean_0_and_std_s_to_the_named_rows_only(
    rows: np.ndarray, s: float, dtype: torch.dtype
) -> None:
    W = torch.as_tensor(rows).to(dtype)
    before = W.clone()
    classes = set(range(0, len(W), 2))
    normalize_(W, classes, s)
    tolerance = 4 * torch.finfo(dtype).eps
    for j in range(len(W)):
        row = W[j].double()
        if j not in classes or before[j].double().std(correction=0) <= 1e-12:
            assert torch.equal(W[j], before[j])
        else:
            assert abs(row.mean().item()) <= tolerance * s * 4
            assert row.std(correction=0).item() == pytest.approx(s, rel=max(tolerance, 1e-9))


@given(rows_arrays, stds)
def test_normalize_is_idempotent(rows: np.ndarray, s: float) -> None:
    W = torch.as_tensor(rows)
    normalize_(W, range(len(W)), s)
    once = W.clone()
    normalize_(W, range(len(W)), s)
    torch.testing.assert_close(W, once, rtol=1e-9, atol=1e-12)


@given(st.integers(0, 2**31), stds, st.sampled_from([1e-8, 1e-4]))
def test_the_normalised_point_is_the_minimum_of_l_bc_up_to_eps(seed: int, s: float, eps: float) -> None:
    W = torch.randn(3, 16, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    normalize_(W, range(3), s)
    # By the closed form the minimum is at sigma^2 = s^2 (1 - eps): go there and look around.
    best = bias_correction_loss(W * math.sqrt(1 - eps), s, eps)
    assert bias_correction_loss(W, s, eps) - best < 2 * eps**2
    for factor in (0.9, 0.99, 1.01, 1.1):
        assert bias_correction_loss(W * factor, s, eps) > best
    assert bias_correction_loss(W + 0.01 * s, s, eps) > best


def test_l_bc_under_momentum_is_stable_below_the_stated_learning_rate_and_diverges_above() -> None:
    n, D, s, w_bc, momentum = 2, 64, 0.05, 5.0, 0.9
    bound = stable_lr(n, D, s, w_bc, momentum)
    ends = []
    for lr in (0.9 * bound, 1.1 * bound):
        W = torch.randn(n, D, generator=torch.Generator().manual_seed(0), dtype=torch.double)
        normalize_(W, range(n), s)
        W = (W * 1.001).requires_grad_(True)  # near the minimum, where the bound is exact
        optimizer = torch.optim.SGD([W], lr=lr, momentum=momentum)
        for _ in range(300):
            optimizer.zero_grad()
            (w_bc * bias_correction_loss(W, s)).backward()
            optimizer.step()
        ends.append(abs(W.detach().std(dim=1, correction=0).mean().item() / s - 1))
    assert ends[0] < 1e-3 < 1e-2 < ends[1]


@pytest.mark.parametrize("s", [0.0, -1.0])
def test_s_must_be_positive(s: float) -> None:
    with pytest.raises(InvalidValue, match="s must be above 0"):
        bias_correction_loss(torch.ones(1, 2), s)
    with pytest.raises(InvalidValue, match="s must be above 0"):
        normalize_(torch.ones(1, 2), {0}, s)
