"""Where images come from: published datasets and a person's own folders."""

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
from triphase.data.sources.imagenet import imagenet

__all__ = [
    "Folder",
    "cifar100",
    "core50_41_order",
    "core50_classes",
    "core50_nicv2",
    "digits",
    "folder",
    "imagenet",
    "nicv2_lists",
    "nicv2_test",
]
