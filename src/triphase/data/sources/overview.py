"""What a data folder holds of every dataset."""

import os
from pathlib import Path

from triphase.data.sources.cifar100 import ABOUT as CIFAR100
from triphase.data.sources.cifar100 import inventory as cifar100
from triphase.data.sources.core50 import ABOUT as CORE50
from triphase.data.sources.core50 import inventory as core50
from triphase.data.sources.digits import ABOUT as DIGITS
from triphase.data.sources.digits import inventory as digits
from triphase.data.sources.folder import ABOUT as FOLDER
from triphase.data.sources.folder import inventory as folder
from triphase.data.sources.imagenet import ABOUT as IMAGENET
from triphase.data.sources.imagenet import inventory as imagenet
from triphase.data.sources.inventory import Inventory, Tick
from triphase.errors import BadData

PUBLISHED = ((DIGITS, digits), (CIFAR100, cifar100), (CORE50, core50), (IMAGENET, imagenet))


def overview(data: Path, tick: Tick = lambda n: None) -> list[Inventory]:
    """An inventory of each dataset, a person's own photos last; folders of the others are not taken for photos."""
    found: list[Inventory] = []
    for about, look in PUBLISHED:
        try:
            found.append(look(data, tick))
        except (BadData, OSError) as error:  # a folder that may not be listed: the others can still be counted
            found.append(Inventory(about, (), (str(error),)))
    taken = frozenset[str]().union(*(inventory.folders for inventory in found))
    try:
        found.append(folder(data, tick, taken))
    except (BadData, OSError) as error:
        found.append(Inventory(FOLDER, (), (str(error),)))
    return found


def check_readable(data: Path) -> None:
    """Refuse a data folder that nobody can look into."""
    try:
        os.scandir(data).close()
    except FileNotFoundError as error:
        raise BadData(f"There is no folder {data}; make it, or check --data.") from error
    except NotADirectoryError as error:
        raise BadData(f"{data} is a file; --data is the folder that holds the datasets.") from error
    except OSError as error:
        raise BadData(f"{data} cannot be listed ({error}); allow reading it.") from error
