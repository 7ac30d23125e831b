"""A trained classifier in inference form: frozen features and linear scores.

Nothing here has a training mode or changes a buffer, so any number of threads may use the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from triphase import scoring
from triphase.models.depth_features import DepthFeatures

LoadCsf = Callable[[Mapping[str, Any], int | None], nn.Module]


class Whitening(nn.Module):
    """Distances to class means under one covariance Sigma = L L^T, which whitening makes the identity."""

    factor: Tensor  # L, (D, D), lower triangular
    means: Tensor  # (n_classes, D), whitened and relative to the mean of all classes
    centre: Tensor  # (D,), the mean of all classes

    def __init__(self, factor: Tensor, means: Tensor, centre: Tensor) -> None:
        super().__init__()
        for name, tensor in (("factor", factor), ("means", means), ("centre", centre)):
            self.register_buffer(name, tensor)

    @classmethod
    def of(cls, factor: Tensor, means: Tensor) -> Whitening:
        """From the factor L (D, D) and the class means (n_classes, D), both in double precision."""
        centre = means.mean(0)
        rows = factor.float().contiguous()  # LAPACK gives columns; rounding depends on the layout
        return cls(rows, scoring.whiten(means - centre, factor).float(), centre.float())

    def whitened(self, f: Tensor) -> Tensor:
        """(n, D): features relative to the mean of all classes, their covariance the identity."""
        white: Tensor = scoring.whiten(f - self.centre, self.factor)
        return white

    def forward(self, f: Tensor) -> Tensor:
        """(n, 2): minus the squared Mahalanobis distance to the nearest class mean, relative and absolute."""
        nearness: Tensor = scoring.nearness(self.whitened(f), self.means)
        return nearness


class Member(nn.Module):
    """One linear classifier: scores = f W^T + b of the features f = csf(z)."""

    weight: Tensor  # (n_classes, D)
    bias: Tensor | None  # (n_classes,)

    def __init__(
        self,
        csf: nn.Module,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        unit_length: bool = False,  # features are scaled to length 1
        whitening: Whitening | None = None,
    ) -> None:
        super().__init__()
        self.csf, self.unit_length, self.whitening = csf, unit_length, whitening
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def features(self, z: Tensor) -> Tensor:
        """(n, D) of latents."""
        f: Tensor = self.csf(z)
        return scoring.unit_length(f) if self.unit_length else f

    def scores(self, f: Tensor) -> Tensor:
        """(n, n_classes) of features."""
        scores: Tensor = scoring.linear(f, self.weight, self.bias)
        return scores

    def distances(self, f: Tensor) -> Tensor:
        """(n, 2) out-of-distribution scores, or (n, 0) for a member without covariance."""
        return f.new_empty(len(f), 0) if self.whitening is None else self.whitening(f)


class Ensemble(nn.Module):
    """The weighted sum of its members' scores, each standardized over the classes, or one member as it is.

    The last member is the closed form, if there is one: its features can be given where they are stored.
    """

    def __init__(
        self, members: Sequence[Member], weights: Sequence[float] = (1.0,), stds: Sequence[float | None] = (None,)
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.weights, self.stds = tuple(weights), tuple(stds)
        self.eval().requires_grad_(False)

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        member = self.members[0]
        assert isinstance(member, Member)
        return member.weight.device

    def with_csf(self, prepare: Callable[[nn.Module], nn.Module]) -> Ensemble:
        """The same with another form of each member's csf."""
        members = []
        for member in self.members:
            assert isinstance(member, Member)
            csf, unit_length = prepare(member.csf), member.unit_length
            whitening = member.whitening
            members.append(Member(csf, member.weight, member.bias, unit_length=unit_length, whitening=whitening))
        return Ensemble(members, self.weights, self.stds)

    @torch.inference_mode()
    def features(self, z: Tensor) -> Tensor:
        """(n, D): the features of the last member, to compare images with."""
        member = self.members[-1]
        assert isinstance(member, Member)
        return member.features(z)

    def reader_state(self) -> dict[str, Tensor]:
        """The state of the csf that computes `features`."""
        member = self.members[-1]
        assert isinstance(member, Member)
        return dict(member.csf.state_dict())

    @torch.inference_mode()
    def forward(self, z: Tensor, f: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scores (n, n_classes) and out-of-distribution scores (n, k) of z; f are the last member's features."""
        parts, distances = self.member_scores(z, f)
        return self.weighted(parts), distances

    @torch.inference_mode()
    def member_scores(self, z: Tensor, f: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
        """The scores of each member, standardized if there are several, and the out-of-distribution scores."""
        members = [member for member in self.members if isinstance(member, Member)]
        return scoring.member_scores(members, self.stds, z, f)

    def weighted(self, parts: Sequence[Tensor]) -> Tensor:
        """The weighted sum of members' scores."""
        total: Tensor = scoring.weighted(parts, self.weights)
        return total


def ensemble_state(ensemble: Ensemble) -> dict[str, Any]:
    """An ensemble as tensors and primitives."""
    members: list[dict[str, Any]] = []
    for member in ensemble.members:
        assert isinstance(member, Member)
        depths = member.csf if isinstance(member.csf, DepthFeatures) else None
        csf, whitening = (member.csf if depths is None else depths.csf), member.whitening
        members.append(
            {
                "csf": dict(csf.state_dict()),
                "max_width": None if depths is None else depths.max_width,
                "unit_length": member.unit_length,
                "weight": member.weight,
                "bias": member.bias,
                "whitening": None if whitening is None else _packed(whitening),
            }
        )
    return {"members": members, "weights": list(ensemble.weights), "stds": list(ensemble.stds)}


def load_ensemble(state: Mapping[str, Any], load_csf: LoadCsf) -> Ensemble:
    """The ensemble of a saved state; `load_csf` makes a block of its saved state, and of a width if it has one."""
    members = []
    for saved in state["members"]:
        csf, given = load_csf(saved["csf"], saved["max_width"]), saved["whitening"]
        whitening = None
        if given is not None:
            factor = scoring.unpacked(given["factor"], len(given["centre"]))
            whitening = Whitening(factor, given["means"], given["centre"])
        unit_length = saved["unit_length"]
        members.append(Member(csf, saved["weight"], saved["bias"], unit_length=unit_length, whitening=whitening))
    return Ensemble(members, state["weights"], state["stds"])


def _packed(whitening: Whitening) -> dict[str, Tensor]:
    """Only the lower half of the factor, row by row."""
    rows = [row[: i + 1] for i, row in enumerate(whitening.factor)]
    return {"factor": torch.cat(rows), "means": whitening.means, "centre": whitening.centre}
