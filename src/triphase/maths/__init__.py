"""The paper's equations on plain tensors."""

from triphase.maths.bias import bias_correction_loss, normalize_, stable_lr
from triphase.maths.masking import block_gradient, harmless, outside

__all__ = ["bias_correction_loss", "block_gradient", "harmless", "normalize_", "outside", "stable_lr"]
