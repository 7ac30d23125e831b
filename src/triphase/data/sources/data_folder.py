"""The data folder: how much of each dataset it contains."""

import os
from pathlib import Path

from triphase.data.sources.cifar100 import INFO as CIFAR100
from triphase.data.sources.cifar100 import check_integrity as check_cifar100
from triphase.data.sources.core50 import INFO as CORE50
from triphase.data.sources.core50 import check_integrity as check_core50
from triphase.data.sources.digits import INFO as DIGITS
from triphase.data.sources.digits import check_integrity as check_digits
from triphase.data.sources.folder import INFO as FOLDER
from triphase.data.sources.folder import check_integrity as check_folder
from triphase.data.sources.hugging_face import check_integrity as check_hugging_face
from triphase.data.sources.imagenet import INFO as IMAGENET
from triphase.data.sources.imagenet import check_integrity as check_imagenet
from triphase.data.sources.integrity import Integrity, Progress
from triphase.errors import BadData

PUBLISHED = ((DIGITS, check_digits), (CIFAR100, check_cifar100), (CORE50, check_core50), (IMAGENET, check_imagenet))


def check_datasets(data: Path, progress: Progress = lambda n: None) -> list[Integrity]:
    """The state of each dataset; folders of published datasets do not count as own photos."""
    found: list[Integrity] = []
    for info, check in PUBLISHED:
        try:
            found.append(check(data, progress))
        except (BadData, OSError) as error:  # a folder that may not be listed: the others can still be counted
            found.append(Integrity(info, (), (str(error),)))
    taken = frozenset[str]().union(*(dataset.folders for dataset in found))
    try:
        found.append(check_folder(data, progress, taken))
    except (BadData, OSError) as error:
        found.append(Integrity(FOLDER, (), (str(error),)))
    return [*found, check_hugging_face(data)]


def check_readable(data: Path) -> None:
    """Refuse a data folder that cannot be listed."""
    try:
        os.scandir(data).close()
    except FileNotFoundError as error:
        raise BadData(f"There is no folder {data}; make it, or check --data.") from error
    except NotADirectoryError as error:
        raise BadData(f"{data} is a file; --data is the folder that holds the datasets.") from error
    except OSError as error:
        raise BadData(f"{data} cannot be listed ({error}); allow reading it.") from error
