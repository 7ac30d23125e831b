"""Mahalanobis distances to class means that share one covariance: out-of-distribution scores.

Whitening turns them into Euclidean distances. Scores are minus squared distances: high near what was taught.
"""

from torch import Tensor


def mahalanobis(features: Tensor, means: Tensor) -> Tensor:
    """(n,): minus the squared distance to the nearest class mean; both are whitened.

    >>> import torch
    >>> mahalanobis(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    tensor([-4.])
    """
    f, m = _centred(features, means)
    return -(f.square().sum(1, keepdim=True) - 2 * f @ m.T + m.square().sum(1)).amin(1)


def relative_mahalanobis(features: Tensor, means: Tensor) -> Tensor:
    """(n,): how much nearer, in squared distance, features are to a class mean than to the mean of all classes.

    What makes an image unusual in itself lengthens both distances and cancels (after Ren et al., 2021).

    >>> import torch
    >>> relative_mahalanobis(torch.tensor([[1.0, 9.0]]), torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    tensor([1.])
    """
    f, m = _centred(features, means)
    return (2 * f @ m.T - m.square().sum(1)).amax(1)


def _centred(features: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """Both around the mean of all classes, where squares are small and differences exact."""
    centre = means.mean(0)
    return features - centre, means - centre
