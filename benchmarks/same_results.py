"""Whether two commits give the same results, bit for bit, on one machine.

    nice -n 19 python benchmarks/same_results.py 56d9911 main

Each commit is checked out in a worktree of its own and asked through its command line: digits-5 with every learner,
and lessons on generated photos with each kind of model. The tensors that learners have saved and the figures that
commands report are compared under their new names; times are left out. The exit status is 1 if anything differs
that EXPLAINED does not name.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import Any

from generated_photos import make_photos
from neutral_state import Difference, Leaf, compare, flat, read_model, read_run, renamed


@dataclass(frozen=True)
class Explanation:
    """Why values differ whose "experiment: name" matches a pattern, and by how much they may."""

    pattern: str
    because: str
    relative: float = math.inf  # largest difference by largest value


EXPLAINED = [
    Explanation(
        "teach*: version */app/temperature",
        "the temperature is found by scipy's root finder in place of a bisection",
        relative=1e-9,
    ),
    Explanation(
        "teach*: version */app/thresholds/*",
        "thresholds are fitted to the scores that the predictor gives, in single precision",
        relative=2e-6,
    ),
    Explanation(
        "teach*: version */app/thresholds/*",
        "Student's quantile, for thresholds from few photos, is exact (scipy) in place of a series",
        relative=5e-3,
    ),
    Explanation(
        "teach*: * predict/answers/*/probability",
        "the predictor no longer pads its last pass to 16 photos, so one photo costs one pass: other rounding",
        relative=1e-5,
    ),
    Explanation(
        "teach JPEG: version */memory/columns/hash",
        "a photo is decoded once, so the hash of a JPEG for near-duplicates comes from the decoding of its pixels",
    ),
    Explanation(
        "teach even lessons: *2*",
        "the recipe of a lesson counts the samples that can be replayed, and no longer the held-out photos",
    ),
]

# Names in OLD -> names in NEW, as regular expressions, in states and in reports.
RENAMED: dict[str, str] = {
    r"\bcourse/": "loop/",
    r"\bstatistics/n$": "statistics/counts",
    r"\banchor_(csf|statistics)/": r"closed_form_\1/",
    r"\bclosed_form_statistics/n$": "closed_form_statistics/counts",
    r"\bahead/glanced$": "closed_form/quick_experience",
    r"\bahead/known/": "closed_form/known/",
    r"\bahead/spreads\b": "closed_form/score_stds",
    r"\bchoosing/": "ridge_images/",
    r"\bloop/divisor$": "loop/lr_divisor",
    r"\bloop/best$": "loop/best_ce",
    r"\bloop/waited$": "loop/epochs_since_best",
    r"\bloop/total$": "loop/ce_sum",
    r"\btaught/apart$": "taught/held_out",
    r"\bapp/exemplar_right$": "app/exemplar_correct",
    r"\bapp/estimated$": "app/covariance_reestimated",
    r"\bteach/unlearned$": "teach/labels_mixed_up",
}

# Not compared: times, versions of software, folders, sentences, and options, which are an input.
IGNORED = (
    "*seconds",
    "*_seconds/*",
    "*/versions/*",
    "*settings/*",
    "*/app/options/*",
    "*/notes/*",
    "*/model",
    "*/run",
)
IGNORED_PARTS = ("run", "measured")  # of a checkpoint: position in the stream, and what the report holds as well
SHOWN = 6  # differences in a row of the table
LEARNERS = "tpc ar1 bic derpp finetune replay joint ncm slda slda_depths ranpac anchored".split()
ANSWERS = ["evaluate {model} {photos}/test", "predict {model} {test}"]
LESSONS = ["teach {model} {photos}/lesson1", "teach {model} {photos}/lesson2"]
REMOVALS = ["unteach {model} {photos}/lesson1/cloth/0003.png", "forget {model} brick"]

# Runs triphase; the checkpoint that a finished run is about to remove is copied before.
KEEP_CHECKPOINT = """
import os, runpy, shutil, sys
def keep(event, arguments):
    if event in ("os.remove", "shutil.rmtree"):
        path = os.fspath(arguments[0])
        folder = os.path.dirname(path) if os.path.basename(path) == "index.json" else path
        if os.path.basename(folder) == "state" and os.path.exists(os.path.join(folder, "index.json")):
            shutil.copytree(folder, os.environ["KEPT"], dirs_exist_ok=True)
sys.addaudithook(keep)
runpy.run_module("triphase", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Experiment:
    """Commands that are run one after the other, and what they leave behind."""

    name: str
    commands: list[str]
    fast: bool = False


@dataclass
class Result:
    """What an experiment of one commit left: the values that it saved, and those that it reported."""

    saved: dict[str, Leaf] = field(default_factory=dict)
    reported: dict[str, Leaf] = field(default_factory=dict)


def experiments() -> list[Experiment]:
    """All of them; those that are `fast` take about a minute together."""
    few = ("tpc", "bic", "slda")
    found = [
        Experiment(f"digits-5 {name}", [f"bench run digits-5 --learner {name} --out {{run}}"], name in few)
        for name in LEARNERS
    ]
    corrected = "teach {model} {photos}/corrected --force"
    found.append(Experiment("teach", [*LESSONS, *ANSWERS, corrected, *REMOVALS, *ANSWERS[1:]], fast=True))
    found.append(Experiment("teach --quick", [f"{lesson} --quick" for lesson in LESSONS]))
    for option in ("--learner tpc", "--learner slda", "--learner ncm", "--replay raw", "--replay none"):
        first = f"{LESSONS[0]} {option}"
        found.append(Experiment(f"teach {option}", [first, LESSONS[1], *ANSWERS[1:], *REMOVALS]))
    even = ["teach {model} {photos}/even1", "teach {model} {photos}/even2"]
    found.append(Experiment("teach even lessons", even))
    jpeg = ["teach {model} {photos}/jpeg1", "teach {model} {photos}/jpeg2"]
    found.append(Experiment("teach JPEG", jpeg))
    return found


def perform(experiment: Experiment, tree: Path, photos: Path, folder: Path) -> Result:
    """Run the commands of an experiment with the sources of one commit, unless this folder has its results."""
    model, run, record = folder / "model", folder / "run", folder / "reported.json"
    test = " ".join(str(file) for file in sorted(photos.glob("test/*/*.png")) + sorted(photos.glob("strange/*/*")))
    if not record.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        reported: dict[str, Leaf] = {}
        for number, command in enumerate(experiment.commands, 1):
            arguments = command.format(model=model, run=run, photos=photos, test=test).split()
            document = call(tree, [*arguments, "--json"], folder / "kept")
            reported |= {f"{number} {arguments[0]}/{name}": value for name, value in flat(document)}
        record.write_text(json.dumps(reported))
    saved = read_run(run, folder / "kept") if run.exists() else read_model(model)
    saved = {name: value for name, value in saved.items() if name.split("/")[0] not in IGNORED_PARTS}
    return Result(saved, json.loads(record.read_text()))


def call(tree: Path, arguments: list[str], kept: Path) -> dict[str, Any]:
    """The document that a command prints, with its exit status."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "KEPT": str(kept)}
    command = [sys.executable, "-c", KEEP_CHECKPOINT, *arguments]
    done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True)
    try:
        return {"exit_status": done.returncode, **json.loads(done.stdout)}
    except ValueError:
        return {"exit_status": done.returncode, "failed_with": done.stderr.strip()[-500:]}


def differences(old: Result, new: Result) -> list[Difference]:
    """What is not the same under the new names, without what is never compared."""
    found = []
    for before, after in ((old.saved, new.saved), (old.reported, new.reported)):
        found += compare(_compared(renamed(before, RENAMED)), after)
    return found


def _compared(values: dict[str, Leaf]) -> dict[str, Leaf]:
    return {n: v for n, v in values.items() if not any(fnmatch(n, pattern) for pattern in IGNORED)}


def explanation(experiment: Experiment, found: Difference) -> Explanation | None:
    """Why a value differs, if that is known and it differs by no more than it should."""
    key = f"{experiment.name}: {found.name}"
    return next((e for e in EXPLAINED if fnmatch(key, e.pattern) and found.relative <= e.relative), None)


def row(experiment: Experiment, old: Result, new: Result) -> tuple[str, bool]:
    """A line of the table, and whether nothing differs without an explanation."""
    reasons: dict[Explanation | None, list[Difference]] = {}
    for one in differences(old, new):
        reasons.setdefault(explanation(experiment, one), []).append(one)
    unexplained = reasons.pop(None, [])
    parts = [f"`{one.name}` {one.what}" for one in unexplained[:SHOWN]]
    if unexplained:
        parts[0] = f"**{len(unexplained)} differ**, for instance {parts[0]}"
    for why, found in reasons.items():
        largest = max(one.relative for one in found)
        size = f" by {largest:.0e} at most" if math.isfinite(largest) else ""
        parts.append(f"{len(found)} differ{size} ({_letter(why)})")
    compared = [len(_compared(renamed(values, RENAMED))) for values in (old.saved, old.reported)]
    result = "; ".join(parts) or "identical"
    return f"| {experiment.name} | {compared[0]} | {compared[1]} | {result} |", not unexplained


def _letter(why: Explanation | None) -> str:
    return "?" if why is None else "abcdefghijklmnopqrstuvwxyz"[EXPLAINED.index(why)]


def main() -> None:
    """Parse, run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="commit to compare with")
    parser.add_argument("new", help="commit to be compared")
    parser.add_argument("--fast", action="store_true", help="three learners and one model: about a minute")
    parser.add_argument("--match", default="", help="run the experiments whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="commands at a time")
    parser.add_argument(
        "--work", type=Path, help="folder to work in; what a commit has done there is not run again"
    )
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    chosen = [e for e in experiments() if options.match in e.name and (e.fast or not options.fast)]
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        sys.exit(0 if run_all(chosen, (options.old, options.new), work, options.jobs) else 1)


def run_all(chosen: list[Experiment], commits: tuple[str, str], work: Path, jobs: int) -> bool:
    """Print a row for each experiment; whether all is identical or explained."""
    photos, fine = work / "photos", True
    if not photos.exists():
        make_photos(photos)
    with _worktree(commits[0]) as old, _worktree(commits[1]) as new, ThreadPoolExecutor(jobs) as pool:
        for side, tree in (("OLD", old), ("NEW", new)):
            print(f"{side} {git('-C', str(tree), 'log', '-1', '--format=%h %s')}")
        print(f"{platform.machine()}, torch {version('torch')}, OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']}\n")
        print("| experiment | tensors and values saved | values reported | result |\n|---|---|---|---|", flush=True)
        waiting = [
            [
                pool.submit(perform, e, tree, photos, work / tree.name / e.name.replace(" ", "_"))
                for tree in (old, new)
            ]
            for e in chosen
        ]
        for experiment, pair in zip(chosen, waiting, strict=True):
            line, good = row(experiment, *(future.result() for future in pair))
            print(line, flush=True)
            fine &= good
        print("\n" + "\n".join(f"- ({_letter(e)}) {e.because}" for e in EXPLAINED))
    return fine


@contextmanager
def _worktree(commit: str) -> Iterator[Path]:
    """A checkout of a commit in a temporary folder that has the name of the commit."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / git("rev-parse", "--short=12", f"{commit}^{{commit}}")
        git("worktree", "add", "--quiet", "--detach", str(folder), commit)
        try:
            yield folder
        finally:
            git("worktree", "remove", "--force", str(folder))


def git(*arguments: str) -> str:
    """What git prints, run in the repository of this script."""
    where = str(Path(__file__).resolve().parent)
    return subprocess.run(
        ["git", "-C", where, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    main()
