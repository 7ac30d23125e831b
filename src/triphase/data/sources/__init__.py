"""Where images come from: published datasets, a person's own folders, and datasets of other libraries."""

from triphase.data.sources.cifar100 import cifar100
from triphase.data.sources.core50 import (
    core50_41_order,
    core50_classes,
    core50_nicv2,
    nicv2_lists,
    nicv2_test,
)
from triphase.data.sources.digits import digits
from triphase.data.sources.folder import Folder, folder
from triphase.data.sources.hugging_face import HuggingFace, hugging_face
from triphase.data.sources.imagenet import imagenet
from triphase.data.sources.torch_datasets import stream_from_avalanche, stream_from_continuum, stream_from_datasets

__all__ = [
    "Folder",
    "HuggingFace",
    "cifar100",
    "core50_41_order",
    "core50_classes",
    "core50_nicv2",
    "digits",
    "folder",
    "hugging_face",
    "imagenet",
    "nicv2_lists",
    "nicv2_test",
    "stream_from_avalanche",
    "stream_from_continuum",
    "stream_from_datasets",
]
