"""Tables of what benchmarks/photos.py has measured: nothing in them is typed by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from photo_cells import LEARNERS, Cell, Document, read_documents

from triphase.bench.report.intervals import bootstrap_interval
from triphase.errors import BadData

NONE = "–"
GROUPS = ("near", "others", "far")
EXPLAINED = """Every other class is taught. Near strangers share the kind of a class that is taught (the last of the
words that hyphens join in a name; in Grocery Store the authors' coarse classes), others do not, far ones come from
other photos. AUROC of the decision (of each of its scores); strangers caught at the model's threshold / where 95 %
of the known test photos are accepted. Reviewed are the 10 % of the known, near and other photos that lie lowest in
the decision."""
ABOUT = ("commit", "torch", "threads", "machine")


class Section(NamedTuple):
    """What all rows of a table have in common."""

    data: str
    half: str
    classes: int | None
    first: int
    then: int
    more: bool
    test_photos: int | None

    @property
    def title(self) -> str:
        """A sentence of it."""
        limit = f", {self.classes} classes at most" if self.classes else ""
        tested = f", {self.test_photos} test photos a class at most" if self.test_photos else ""
        more = ", a last lesson of more photos of old classes" if self.more else ""
        half = "all classes" if self.half == "all" else f"half {self.half}"
        return f"{self.data}, {half}{limit}: {self.first} classes first, then {self.then} a lesson{more}{tested}"


class Row(NamedTuple):
    """A learner in a table."""

    source: str  # the folder of results
    learner: str
    backbone: str
    size: int


@dataclass(frozen=True)
class Finished:
    """A finished cell."""

    source: str
    cell: Cell
    result: Document
    about: Document

    @property
    def section(self) -> Section:
        """The table that it belongs to."""
        cell = self.cell
        return Section(cell.data, cell.half, cell.classes, cell.first, cell.then, cell.more, cell.test_photos)

    @property
    def row(self) -> Row:
        """The row that it belongs to."""
        return Row(self.source, self.cell.learner, self.cell.backbone, self.result["image_size"])


def write_report(folders: Sequence[Path], out: Path) -> None:
    """Write all tables of the finished cells in some folders; the first folder is what the others compare with."""
    finished = [
        Finished(folder.resolve().name, Cell(**document["cell"]), document["result"], document["about"])
        for folder in folders
        for document in read_documents(folder)
    ]
    if not finished:
        raise BadData(f"No cell is finished in {', '.join(map(str, folders))}; run photos.py --out there first.")
    plain = [one for one in finished if not one.cell.unknown]
    strange = [one for one in finished if one.cell.unknown]
    lines = ["# Real photographs, lesson by lesson", "", *_origin(finished)]
    for section in sorted({one.section for one in plain}, key=str):
        lines += _tables(section, [one for one in plain if one.section == section])
    lines += _measure(plain) if plain else []
    for section in sorted({one.section for one in strange}, key=str):
        lines += _unknown(section, [one for one in strange if one.section == section])
    out.write_text("\n".join(lines) + "\n")


def _origin(finished: list[Finished]) -> list[str]:
    """Commands, commits and machines."""
    lines = [
        "Written by `python benchmarks/photos.py report`; accuracy is the mean of the classes' accuracies on the"
    ]
    lines += ["test photos, in percent, as a mean over orders.", ""]
    for source in dict.fromkeys(one.source for one in finished):
        abouts = [one.about for one in finished if one.source == source]
        lines += [f"    {command}" for command in dict.fromkeys(about["command"] for about in abouts)] + [""]
        facts = [", ".join(sorted({str(about[key]) for about in abouts})) for key in ABOUT]
        said = "; ".join(f"{key} {fact}" for key, fact in zip(ABOUT, facts, strict=True))
        engines = ", ".join(sorted({one.result["engine"] for one in finished if one.source == source}))
        lines += [f"Results {source}: {said}; engine {engines}.", ""]
    learners = dict.fromkeys(one.cell.learner for one in finished)
    return [*lines, *(f"- {learner}: {LEARNERS[learner]}" for learner in learners), ""]


def _tables(section: Section, finished: list[Finished]) -> list[str]:
    """Accuracy, calibration, seconds and bytes of one set of photos."""
    by_row = _grouped(finished)
    lines = [f"## {section.title}", "", "Accuracy, in brackets the paired difference to the default (of later"]
    lines += ["results: to the default of the first) with its 95 % interval over orders and classes.", ""]
    lines += _by_photos(by_row, lambda row, cells: _accuracy(row, cells, by_row))
    if section.half == "all":
        lines += [
            "",
            "The same of the classes of half A, which chose the defaults, and of half B, which did not.",
            "",
        ]
        lines += _by_photos(by_row, lambda row, cells: _halves(cells))
    lines += ["", "Expected calibration error, 15 bins of equal width.", ""]
    lines += _by_photos(by_row, lambda row, cells: f"{fmean(one.result['ece'] for one in cells):.3f}")
    lines += [
        "",
        "Seconds of the wall / of the processor, in brackets those of a lesson; rivals learn all at once.",
        "",
    ]
    lines += _by_photos(by_row, lambda row, cells: _seconds(cells))
    taught = {row: cells for row, cells in by_row.items() if "lessons" in cells[0].result}
    if taught:
        lines += ["", "Megabytes of the model directory / of a version, lessons that the guard would have refused,"]
        lines += ["and milliseconds (wall / processor) for an answer from a file.", ""]
        lines += _by_photos(taught, lambda row, cells: _footprint(cells))
    return [*lines, ""]


def _grouped(finished: list[Finished]) -> dict[Row, list[Finished]]:
    by_row: dict[Row, list[Finished]] = {}
    for one in finished:
        by_row.setdefault(one.row, []).append(one)
    return by_row


def _by_photos(by_row: dict[Row, list[Finished]], entry: Callable[[Row, list[Finished]], str]) -> list[str]:
    """A table with a column for each number of photos a class."""
    photos = sorted({one.cell.per_class for cells in by_row.values() for one in cells}, key=lambda n: n or 10**9)
    header = ["learner", "network", "px", *("all photos" if n is None else f"{n} a class" for n in photos)]
    several = len({row.source for row in by_row}) > 1
    body = []
    for row, cells in by_row.items():
        entries = []
        for n in photos:
            those = [one for one in cells if one.cell.per_class == n]
            entries.append(entry(row, those) if those else NONE)
        body.append([*_names(row), *entries] + ([row.source] if several else []))
    return _table(header + (["results"] if several else []), body)


def _names(row: Row) -> list[str]:
    return [row.learner, row.backbone.replace("efficientnet_", ""), str(row.size)]


def _table(header: list[str], body: list[list[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *body]
    return [f"| {' | '.join(line)} |" for line in lines]


def _accuracy(row: Row, cells: list[Finished], by_row: dict[Row, list[Finished]]) -> str:
    mean = f"{100 * fmean(one.result['accuracy'] for one in cells):.1f}"
    first = next(iter(by_row)).source
    reference = row._replace(learner="default", source=first if row.learner == "default" else row.source)
    if reference == row:
        return mean
    theirs = {_pairing(one): one.result["by_class"] for one in by_row.get(reference, [])}
    pairs = [(one.result["by_class"], theirs[_pairing(one)]) for one in cells if _pairing(one) in theirs]
    if not pairs:
        return mean
    rows = [
        torch.tensor([[ours[name] - other[name] for name in sorted(ours)]], dtype=torch.float64)
        for ours, other in pairs
    ]
    low, high = bootstrap_interval(rows)
    return f"{mean} ({100 * float(torch.cat(rows).mean()):+.1f} [{100 * low:+.1f}, {100 * high:+.1f}])"


def _halves(cells: list[Finished]) -> str:
    """Accuracy on every other class, sorted by name, and on the others."""
    means = []
    for first in (0, 1):
        parts = [
            [one.result["by_class"][name] for name in sorted(one.result["by_class"])[first::2]] for one in cells
        ]
        means.append(f"{100 * fmean(fmean(part) for part in parts):.1f}")
    return " / ".join(means)


def _pairing(one: Finished) -> tuple[Any, ...]:
    return one.cell.per_class, one.cell.order


def _seconds(cells: list[Finished]) -> str:
    """Of a lesson, and of everything."""
    wall, processor = ([one.result[key] for one in cells] for key in ("seconds", "cpu_seconds"))
    total = f"{fmean(wall):.1f} / {fmean(processor):.1f}"
    lessons = [lesson for one in cells for lesson in one.result.get("lessons", [])]
    if not lessons:
        return total
    means = [fmean(lesson[key] for lesson in lessons) for key in ("seconds", "cpu_seconds")]
    return f"{total} ({means[0]:.1f} / {means[1]:.1f})"


def _footprint(cells: list[Finished]) -> str:
    model, version = (fmean(one.result[key] for one in cells) / 1e6 for key in ("model_bytes", "version_bytes"))
    lessons = [lesson for one in cells for lesson in one.result["lessons"]]
    refused = sum(lesson["refused"] for lesson in lessons)
    asked = [one.result["predict"] for one in cells]
    each = [1000 * fmean(one[key] / one["photos"] for one in asked) for key in ("seconds", "cpu_seconds")]
    return f"{model:.0f} / {version:.0f}, {refused} of {len(lessons)}, {each[0]:.1f} / {each[1]:.1f} ms"


def _measure(finished: list[Finished]) -> list[str]:
    """The measure of photos_rule.md: every set and number of photos counts alike."""
    body = []
    for row, cells in _grouped(finished).items():
        parts: dict[Any, list[Finished]] = {}
        for one in cells:
            parts.setdefault((one.section, one.cell.per_class), []).append(one)
        means = [[fmean(one.result[key] for one in part) for part in parts.values()] for key in ("accuracy", "ece")]
        seconds = fmean(fmean(one.result["seconds"] for one in part) for part in parts.values())
        figures = [f"{100 * fmean(means[0]):.2f}", f"{fmean(means[1]):.3f}", f"{seconds:.0f}", str(len(parts))]
        body.append([row.source, *_names(row), *figures])
    lines = ["## All together", "", "Sets and numbers of photos count alike; rows compare where they have the same"]
    lines += ["number of them.", ""]
    header = ["results", "learner", "network", "px", "accuracy", "ECE", "seconds", "sets x numbers"]
    return [*lines, *_table(header, body), ""]


def _unknown(section: Section, finished: list[Finished]) -> list[str]:
    """How well strangers are found."""
    lines = [f"## Unknown: {section.title}", "", *EXPLAINED.split("\n"), ""]
    header = ["learner", "network", "px", "photos", "known accepted", *GROUPS, "near and others"]
    header += ["strangers among those reviewed", "results"]
    body = []
    for row, cells in _grouped(finished).items():
        for n in sorted({one.cell.per_class for one in cells}, key=lambda n: n or 10**9):
            found = [one.result["unknown"] for one in cells if one.cell.per_class == n]
            groups = [_separation([f["groups"].get(group) for f in found]) for group in GROUPS]
            accepted = f"{100 * fmean(f['known_accepted'] for f in found):.1f} %"
            both, review = _separation([f["together"] for f in found]), _review([f["review"] for f in found])
            body.append([*_names(row), f"{n or 'all'}", accepted, *groups, both, review, row.source])
    return [*lines, *_table(header, body), ""]


def _separation(found: list[Document | None]) -> str:
    those = [one for one in found if one is not None]
    if not those:
        return NONE
    scores = [fmean(column) for column in zip(*(one["auroc_of_scores"] for one in those), strict=True)]
    each = ", ".join(f"{score:.3f}" for score in scores)
    caught, at_95 = (100 * fmean(one[key] for one in those) for key in ("caught", "caught_at_95"))
    return f"{fmean(one['auroc'] for one in those):.3f} ({each}); {caught:.0f} / {at_95:.0f} %"


def _review(found: list[Document | None]) -> str:
    those = [one for one in found if one is not None]
    if not those:
        return NONE
    hits, photos, strangers, of = (
        sum(one[key] for one in those) for key in ("strangers", "photos", "strangers_in_all", "of")
    )
    return f"{100 * hits / photos:.0f} % (of all photos: {100 * strangers / of:.0f} %)"
