"""The cells of benchmarks/photos.py: their settings, and a file of those that are finished."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Document = dict[str, Any]
RESULTS = "results.jsonl"
PRODUCT = {
    "default": "`teach` with its defaults, lesson by lesson",
    "quick": "the same with --quick, the last lesson as its quick version answers",
    "thorough": "the same as the default, and consolidation after the last lesson",
}
RIVALS = {
    "lda": "discriminant analysis of the last depths, on all photos at once; its posteriors as they are",
    "logistic": "logistic regression on these features, standardised; penalty chosen on held-out training photos",
    "knn": "the five nearest neighbours by cosine, on the same features",
    "joint": "blocks 10 to 16 of Lite0 fine-tuned on all photos at once: 16 epochs, minibatches of 32, flips, "
    "label smoothing 0.1, SGD with momentum 0.9, cosine; rate of .01, .03 or .1 chosen on held-out training photos "
    "unless the command gives one",
    "lda_f": "lda of the last features alone",
    "logistic_f": "logistic of the last features alone",
    "knn_f": "knn of the last features alone",
}
LEARNERS = {**PRODUCT, **RIVALS}


@dataclass(frozen=True)
class Cell:
    """One measurement: its settings and nothing else."""

    data: str
    half: str
    per_class: int | None  # None: all photos
    order: int
    learner: str
    size: int | None  # None: the network's own for photos
    backbone: str
    unknown: bool
    classes: int | None  # at most so many
    first: int
    then: int
    more: bool
    test_photos: int | None

    @property
    def title(self) -> str:
        """For a line on the screen."""
        size = "own size" if self.size is None else f"{self.size} px"
        photos = "all photos" if self.per_class is None else f"{self.per_class} photos a class"
        unknown = " unknown" if self.unknown else ""
        return f"{self.data} {self.half}, {photos}, order {self.order}, {size}: {self.learner}{unknown}"

    @property
    def slug(self) -> str:
        """For a folder."""
        return "-".join(str(value) for value in asdict(self).values())


def read_documents(folder: Path) -> list[Document]:
    """The finished cells of a folder; a line that was cut off by a crash is passed over."""
    file, documents = folder / RESULTS, []
    for line in file.read_text().splitlines() if file.exists() else []:
        with suppress(json.JSONDecodeError):
            documents.append(json.loads(line))
    return documents


class Results:
    """Finished cells, one line each."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / RESULTS
        self.by_cell = {Cell(**document["cell"]): document["result"] for document in read_documents(folder)}

    def add(self, cell: Cell, result: Document, about: Document) -> None:
        """Append a finished cell."""
        self.by_cell[cell] = result
        document = json.dumps({"cell": asdict(cell), "result": result, "about": about})
        cut_off = self.file.exists() and not self.file.read_bytes().endswith(b"\n")
        with self.file.open("a") as file:
            file.write(("\n" if cut_off else "") + document + "\n")

    def chosen(self, cell: Cell) -> float | None:
        """The rate or penalty that was chosen in another order of the same cell."""
        for other, result in self.by_cell.items():
            if asdict(other) | {"order": cell.order} == asdict(cell):
                choice: float | None = result.get("chosen")
                return choice
        return None
