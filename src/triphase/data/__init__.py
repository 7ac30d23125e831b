"""Where images come from and how they reach the model."""

from triphase.data.images import Images
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience, Stream, class_incremental, joint, stream, with_repetition

__all__ = [
    "Experience",
    "Images",
    "Memory",
    "Recipe",
    "Stream",
    "class_incremental",
    "joint",
    "stream",
    "with_repetition",
]
