"""Real photographs taught lesson by lesson, beside rivals that see all of them at once.

    python benchmarks/photos.py --photos grocery --photos caltech101 --out results/photos [--half A|B|all]
        [--per-class 5,10,20,all] [--orders 0,1,2] [--learners default,quick,lda,logistic,knn,joint,thorough]
        [--sizes 128,224] [--backbone NAME] [--unknown]
    python benchmarks/photos.py report results/photos [OTHER ...] --out benchmarks/results/photos.md

A folder of photos has train/CLASS/*.jpg and test/CLASS/*.jpg; half A are the classes at even positions when sorted
by name. Every finished cell is a line of results.jsonl; the same command again goes on with the others.

Lessons: 20 classes, then 5 a lesson, then a fifth of each class's photos, which was kept back. photo_cells.LEARNERS
says what each learner is; a rate or penalty that is chosen in one order is used in the others.

With --unknown, every other class is taught (default, thorough) and the rest are strangers: near ones share the kind
of a class that is taught (photo_sets.kind), far ones are test photos of the other folders or of --far.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import photo_sets
import torch
from photo_cells import LEARNERS, PRODUCT, Cell, Results
from photo_lessons import Result, consolidated, detection, measured, taught
from photo_report import write_report
from photo_rivals import Rivals
from photo_sets import Photos, PhotoSet

from triphase.app.options import ModelOptions
from triphase.errors import TriphaseError

LEARNED = "default,quick,lda,logistic,knn,joint,thorough"
FAR_PER_CLASS = 5  # test photos of each class of other folders


def main(words: list[str] | None = None) -> None:
    """Measure what is missing, or write the report."""
    words = sys.argv[1:] if words is None else words
    try:
        if words[:1] == ["report"]:
            parser = argparse.ArgumentParser(prog="photos.py report", description="Write tables of finished cells.")
            parser.add_argument("folders", nargs="+", type=Path, help="results; those of before first")
            parser.add_argument("--out", type=Path, required=True)
            arguments = parser.parse_args(words[1:])
            write_report(arguments.folders, arguments.out)
        else:
            run(_parser().parse_args(words), command(words))
    except TriphaseError as error:
        sys.exit(str(error))


def run(arguments: argparse.Namespace, words: str) -> None:
    """All cells that are not finished, those that share photos and features one after the other."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    if "thorough" in arguments.learners and find_spec("triphase.app.consolidate") is None:
        say("This version of triphase has no consolidation: thorough is left out.")
        arguments.learners = [name for name in arguments.learners if name != "thorough"]
    results, about = Results(arguments.out), {"command": words, **machine()}
    wanted = list(cells(arguments))
    rivals: Rivals | None = None
    shared: tuple[str, str, int | None] = ("", "", None)
    for number, cell in enumerate(wanted, start=1):
        if cell in results.by_cell:
            continue
        say(f"[{number}/{len(wanted)}] {cell.title}")
        folder = next(path for path in arguments.photos if name_of(path) == cell.data)
        data = photo_sets.read(folder, cell.half, cell.classes, cell.test_photos)
        if cell.learner in PRODUCT:
            work, keep = arguments.out / "work", cell.learner == "default" and "thorough" in arguments.learners
            result = taught_cell(cell, data, far_photos(arguments, folder), work, keep)
        else:
            if rivals is None or shared != (cell.data, cell.backbone, cell.size):  # else features are reused
                shared = cell.data, cell.backbone, cell.size
                rivals = Rivals(cell.backbone, cell.size)
            train = photo_sets.draw(data.train, cell.per_class, cell.order)
            given = arguments.joint_rate if cell.learner == "joint" else None
            result = rivals.result(cell.learner, data, train, cell.order, given or results.chosen(cell))
        results.add(cell, result, about)
        say(f"    {summary(result)}")
    say(f"{len(wanted)} cells are in {results.file}")


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """What the arguments ask for."""
    kinds = product(arguments.sizes, arguments.photos, arguments.per_class, arguments.orders, arguments.learners)
    shared = {
        name: getattr(arguments, name) for name in ("half", "backbone", "unknown", "classes", "first", "then")
    }
    shared |= {"more": not arguments.no_more_photos, "test_photos": arguments.test_photos}
    for size, folder, per_class, order, learner in kinds:
        if not arguments.unknown or learner in ("default", "thorough"):
            yield Cell(data=name_of(folder), per_class=per_class, order=order, learner=learner, size=size, **shared)


def taught_cell(cell: Cell, data: PhotoSet, far: Photos, work: Path, keep: bool) -> Result:
    """Teach the product and measure it; `keep` leaves the model for the same lessons with consolidation."""
    strange: dict[str, Photos] = {}
    if cell.unknown:
        data, groups = photo_sets.strangers(data)
        strange = {**groups, "far": far}
    photos = photo_sets.draw(data.train, cell.per_class, cell.order)
    plan = photo_sets.lessons(photos, cell.order, cell.first, cell.then, cell.more)
    options = ModelOptions(backbone=cell.backbone, image_size=cell.size)
    same = cell if cell.learner == "quick" else Cell(**asdict(cell) | {"learner": "default"})
    folder = work / same.slug
    lessons = taught(folder, plan, options, cell.learner == "quick", say)
    further = [consolidated(folder / "model", say)] if cell.learner == "thorough" else []
    result = measured(folder / "model", data.test) | {"lessons": lessons, "consolidation": further}
    result |= {key: sum(part[key] for part in (*lessons, *further)) for key in ("seconds", "cpu_seconds")}
    if cell.unknown:
        result["unknown"] = detection(folder / "model", data, strange)
    if not keep:
        shutil.rmtree(folder)
    return result


def far_photos(arguments: argparse.Namespace, folder: Path) -> Photos:
    """A few test photos of every class of the other folders."""
    others = [other for other in (*arguments.photos, *arguments.far) if other.resolve() != folder.resolve()]
    tests = {other: photo_sets.read(other, n_test=FAR_PER_CLASS).test for other in others if arguments.unknown}
    return {f"{name_of(other)}/{name}": files for other, test in tests.items() for name, files in test.items()}


def summary(result: Result) -> str:
    """The figures of a cell in one line."""
    text = f"accuracy {100 * result['accuracy']:.1f} %, ECE {result['ece']:.3f}, {result['seconds']:.1f} s"
    for group, found in result.get("unknown", {}).get("groups", {}).items():
        text += f", {group} AUROC {found['auroc']:.3f}"
    return text


def name_of(folder: Path) -> str:
    """The name of a set of photos."""
    return folder.resolve().name


def command(words: list[str]) -> str:
    """The command as anybody would write it: folders by their names."""
    short = [Path(word).name if "/" in word else word for word in words]
    return " ".join(["python benchmarks/photos.py", *short])


def machine() -> dict[str, Any]:
    """What the figures depend on besides the settings."""

    def git(*words: str) -> str:
        said = subprocess.run(
            ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
        return said.stdout.strip()

    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    return {
        "commit": (git("rev-parse", "--short", "HEAD") or "unknown") + changed,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def say(text: str) -> None:
    """Show progress."""
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="photos.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=Path, action="append", required=True, help="with train/ and test/")
    parser.add_argument("--out", type=Path, required=True, help="folder of results.jsonl")
    parser.add_argument("--half", choices=("A", "B", "all"), default="all")
    parser.add_argument("--per-class", type=_numbers("all", least=2), default="5,10,20,all")
    parser.add_argument("--orders", type=_numbers(), default="0,1,2")
    parser.add_argument("--learners", type=_learners, default=LEARNED, help=", ".join(LEARNERS))
    parser.add_argument("--sizes", type=_numbers("own", least=8), default="own", help="pixels; own: the default")
    parser.add_argument("--backbone", default=ModelOptions().backbone)
    parser.add_argument("--joint-rate", type=float, help="of joint fine-tuning, in place of a search")
    parser.add_argument("--unknown", action="store_true", help="teach every other class; the rest are strangers")
    parser.add_argument("--far", type=Path, action="append", default=[], help="photos of far strangers")
    parser.add_argument("--no-more-photos", action="store_true", help="without a last lesson of old classes")
    parser.add_argument("--first", type=_positive, default=20, help="classes of the first lesson")
    parser.add_argument("--then", type=_positive, default=5, help="classes of each lesson after it")
    parser.add_argument("--classes", type=_positive, help="at most so many classes, for a try")
    parser.add_argument("--test-photos", type=_positive, help="at most so many a class")
    return parser


def _numbers(other: str = "", least: int = 0) -> Any:
    """A parser of numbers with commas; the word `other` stands for None."""

    def numbers(text: str) -> list[int | None]:
        found = [None if word == other else int(word) for word in text.split(",")]
        if any(number is not None and number < least for number in found):
            raise argparse.ArgumentTypeError(f"numbers of at least {least}, got {text}")
        return found

    return numbers


def _positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"at least 1, got {text}")
    return int(text)


def _learners(text: str) -> list[str]:
    for name in text.split(","):
        if name not in LEARNERS:
            raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(LEARNERS)}")
    return text.split(",")


if __name__ == "__main__":
    main()
