"""The product taught photos lesson by lesson, and what it answers: one part of benchmarks/photos.py."""

from __future__ import annotations

import importlib
import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from detection_scores import auroc, expected_calibration_error
from photo_sets import Photos, PhotoSet, images_of, link
from torch import Tensor

from triphase.app.options import ModelOptions
from triphase.app.plan import LessonSettings
from triphase.app.predictor import Predictor
from triphase.app.store.versions import Store
from triphase.app.teach import teach
from triphase.bench.metrics import class_accuracy
from triphase.context import Context

REVIEWED = 0.1  # share of photos, the most doubtful ones first, that a person looks at
Say = Callable[[str], None]
Result = dict[str, Any]


class _QuickEnough(Exception):
    """The last lesson has published its quick version, which is all that is measured."""


class Clock:
    """Seconds since it was made: those of the wall, and those that the processor has worked."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def read(self) -> Result:
        """What has passed so far."""
        wall, processor = self._began
        return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - processor}


@dataclass(frozen=True)
class Answers:
    """What a predictor says about photos; labels are -1 where their class was never taught."""

    labels: Tensor
    probabilities: Tensor  # (n, classes)
    known: Tensor  # (n,) bool
    ood_scores: Tensor  # (n, k)
    seconds: Result


def taught(folder: Path, plan: list[Photos], options: ModelOptions, quick: bool, say: Say) -> list[Result]:
    """Teach all lessons; what was taught by a run before is read, and a run that was interrupted begins anew.

    With `quick`, seconds are those to the quick version, and the last lesson ends with it.
    """
    model, record = folder / "model", folder / "lessons.json"
    if record.exists():
        found: list[Result] = json.loads(record.read_text())
        return found
    shutil.rmtree(folder, ignore_errors=True)
    results: list[Result] = []
    for number, lesson in enumerate(plan, start=1):
        photos = link(lesson, folder / f"lesson{number:02d}")
        last = number == len(plan)
        result = _quick_lesson(model, photos, options, last) if quick else _lesson(model, photos, options)
        results.append({"photos": sum(map(len, lesson.values())), "classes": len(lesson), **result})
        say(f"lesson {number} of {len(plan)}: {results[-1]['photos']} photos in {result['seconds']:.1f} s")
    record.write_text(json.dumps(results))
    return results


def _lesson(model: Path, photos: Path, options: ModelOptions) -> Result:
    """A whole lesson: its seconds, and whether the guard would have refused it."""
    clock, context = Clock(), Context(engine="auto")
    outcome = teach(model, photos, options, LessonSettings(force=True), context=context)
    return {**clock.read(), "refused": outcome.refused}


def _quick_lesson(model: Path, photos: Path, options: ModelOptions, last: bool) -> Result:
    """A lesson with its quick version: the seconds to that, after which the last lesson ends."""
    clock, context = Clock(), Context(engine="auto")
    seconds: Result = {}

    def on_event(event: Result) -> None:
        if event["event"] == "taught_quick":
            seconds.update(clock.read())
            if last:
                raise _QuickEnough

    refused = False
    with suppress(_QuickEnough):
        settings = LessonSettings(force=True, quick=True)
        refused = teach(model, photos, options, settings, on_event=on_event, context=context).refused
    return {**(seconds or clock.read()), "refused": refused}


def consolidated(model: Path, say: Say) -> Result:
    """Let the model learn on from what it stores, until it ends by itself."""
    clock = Clock()
    importlib.import_module("triphase.app.consolidate").consolidate(model, minutes=None)  # not in every version
    result = clock.read()
    say(f"consolidated in {result['seconds']:.1f} s")
    return result


def answers(predictor: Predictor, photos: Photos) -> Answers:
    """Ask a predictor about photos, as many at a time as it likes."""
    clock = Clock()
    images = images_of(photos, list(predictor.names), predictor.size)
    parts = [predictor.scores(images.read(rows)) for rows in torch.arange(len(images)).split(predictor.chunk)]
    logits, scores = (torch.cat(column) for column in zip(*parts, strict=True))
    calibration = predictor.calibration
    return Answers(
        images.labels,
        calibration.probabilities(logits),
        calibration.accepts(scores),
        scores,
        clock.read(),
    )


def accuracy(probabilities: Tensor, labels: Tensor, names: list[str]) -> Result:
    """Macro accuracy, that of each class, and the expected calibration error."""
    by_class = class_accuracy(probabilities.argmax(1), labels, len(names))
    by_name = {n: a for n, a in zip(names, by_class.tolist(), strict=True) if a == a}
    return {
        "accuracy": sum(by_name.values()) / len(by_name),
        "ece": expected_calibration_error(probabilities, labels),
        "by_class": dict(sorted(by_name.items())),
    }


def measured(model: Path, test: Photos) -> Result:
    """How well a model answers the test photos, and what it takes on disk."""
    predictor, version = Predictor.open(model), Store(model).version()
    answered = answers(predictor, test)
    return {
        **accuracy(answered.probabilities, answered.labels, list(predictor.names)),
        "image_size": predictor.size,
        "engine": version.info["engine"],
        "model_bytes": sum(file.stat().st_size for file in model.rglob("*") if file.is_file()),
        "version_bytes": sum(part.bytes for part in version.parts.values()),
        "predict": {**answered.seconds, "photos": len(answered.labels)},
    }


def detection(model: Path, data: PhotoSet, strange: dict[str, Photos]) -> Result:
    """How well the model tells test photos of taught classes from each group of strangers.

    "near" and "others" lie among the same photos as the classes taught; "far" ones do not, so they are not part of
    what a person reviews.
    """
    predictor = Predictor.open(model)
    groups = {group: photos for group, photos in strange.items() if photos}
    named = {f"{group}: {name}": files for group, photos in groups.items() for name, files in photos.items()}
    found = answers(predictor, {**data.test, **named})
    sizes = [sum(map(len, photos.values())) for photos in (data.test, *groups.values())]
    rows = dict(zip(["known", *groups], torch.arange(sum(sizes)).split(sizes), strict=True))
    known = rows.pop("known")
    decision = _decision(found.ood_scores, predictor.calibration.thresholds, known)
    among = [strangers for group, strangers in rows.items() if group != "far"]
    return {
        "known_accepted": _share(found.known[known]),
        "groups": {
            group: {"classes": len(groups[group]), **_separation(found, decision, known, strangers)}
            for group, strangers in rows.items()
        },
        "together": _separation(found, decision, known, torch.cat(among)) if among else None,
        "review": _review(decision, known, torch.cat(among)) if among else None,
    }


def _separation(found: Answers, decision: Tensor, known: Tensor, strangers: Tensor) -> Result:
    """How well strangers are told from known photos; both are rows."""
    return {
        "photos": len(strangers),
        "auroc": auroc(decision[known], decision[strangers]),
        "auroc_of_scores": [auroc(column[known], column[strangers]) for column in found.ood_scores.unbind(1)],
        "caught": _share(~found.known[strangers]),
        "caught_at_95": _share(decision[strangers] < decision[known].quantile(0.05)),
    }


def _review(decision: Tensor, known: Tensor, strangers: Tensor) -> Result:
    """How many strangers a person finds who looks at the most doubtful photos."""
    everything = torch.cat([known, strangers])
    first = everything[decision[everything].argsort()[: max(1, round(REVIEWED * len(everything)))]]
    hits = int(torch.isin(first, strangers).sum())
    return {"photos": len(first), "strangers": hits, "strangers_in_all": len(strangers), "of": len(everything)}


def _decision(scores: Tensor, thresholds: tuple[float, ...], known: Tensor) -> Tensor:
    """(n,): the least margin of scores (n, k) to their thresholds, in standard deviations over the known rows.

    It is what the answer "unknown" depends on, so the photos with the lowest are the most doubtful.
    """
    least = torch.tensor(thresholds or (0.0,) * scores.shape[1]).nan_to_num(neginf=0.0)
    return ((scores - least) / scores[known].std(0).clamp(min=1e-12)).amin(1)


def _share(yes: Tensor) -> float:
    return float(yes.double().mean())
