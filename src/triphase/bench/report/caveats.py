"""What a reader must know to believe a table: orders, shortened schedules, unequal conditions, tuning."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from triphase.bench.report.group import Entry, Gathered, flat
from triphase.bench.report.titles import benchmark_title, own_settings
from triphase.errors import few

EQUAL_FOR_ALL: tuple[str, ...] = (
    "backbone",
    "image_size",
    "per_class",
    "classes",
    "epochs_scale",
    "head",
    "norm",
    "weights",
    "bfloat16",
)
EQUAL_FOR_ALL += ("first.epochs", "rest.epochs", "rest.augment", "rest.momentum", "rest.weight_decay")
EQUAL_FOR_ALL += ("rest.lr_schedule",)
EQUAL_WITH_MEMORY = ("memory.capacity", "memory.store", "rest.n_mbe", "rest.n_mbr")


def conditions(gathered: Gathered) -> list[str]:
    """One note per benchmark, and one on what is still running."""
    notes = []
    for name in gathered.benchmarks:
        reference, compared = _compared(gathered, name)
        sentences = [_setting(reference), _orders(compared, reference), *_departures(reference, compared)]
        if (ceiling := fmean(run.report.ceiling for run in reference.runs)) < 1:
            sentences.append(f"Perfect learning would reach an AMCA of {100 * ceiling:.1f} %.")
        if name.startswith("cifar100") and reference.settings.get("pretrained"):
            sentences.append("The classes of CIFAR-100 overlap those of the pre-training.")
        notes.append(f"{benchmark_title(name)}: {' '.join(sentences)}")
    if gathered.unfinished:
        notes.append(f"Not finished, and left out: {few(gathered.unfinished)}.")
    return notes


def departures(gathered: Gathered) -> list[str]:
    """What goes under every table: where a benchmark was shortened or otherwise not run as published."""
    found = {name: _departures(*_compared(gathered, name)) for name in gathered.benchmarks}
    return [f"{benchmark_title(name)}: {' '.join(sentences)}" for name, sentences in found.items() if sentences]


def _compared(gathered: Gathered, benchmark: str) -> tuple[Entry, list[Entry]]:
    """The entry whose settings stand for all, TPC's if there is one, and the others in the tables."""
    entries = gathered.of(benchmark)
    compared = [entry for entry in entries if entry.compared] or entries
    return next((entry for entry in compared if entry.learner == "tpc"), compared[0]), compared


def _departures(reference: Entry, compared: Sequence[Entry]) -> list[str]:
    changed = shortened(reference)
    sentences = [f"Not the benchmark's own setting: {', '.join(changed)}."] if changed else []
    sentences += unequal(compared, reference)
    tuned = [entry.title for entry in compared if any(run.tuned_here for run in entry.runs)]
    return sentences + ([f"Tuned on the very order that is shown: {', '.join(tuned)}."] if tuned else [])


def _setting(entry: Entry) -> str:
    settings = entry.settings
    first, rest, memory = settings["first"]["epochs"], settings["rest"]["epochs"], settings.get("memory")
    parts = [f"{settings['backbone']} at {settings['image_size']} px"] if "backbone" in settings else []
    parts.append(f"{rest} epochs" + (f" ({first} in the first experience)" if first != rest else ""))
    parts.append(f"memory of {memory['capacity']} ({memory['store']})" if memory else "no memory")
    points, of = entry.runs[0].report.evaluated_after, entry.runs[0].report.evaluated_after[-1]
    parts += [f"evaluated after {len(points)} of {of} experiences"] if len(points) < of else []
    return ", ".join(parts) + "."


def _orders(entries: Sequence[Entry], reference: Entry) -> str:
    orders = reference.orders
    text = "One class order:" if len(orders) == 1 else "Mean and standard deviation over class orders"
    text += " " + ", ".join(map(str, orders))
    others = [f"{e.title}: {', '.join(map(str, e.orders))}" for e in entries if e.orders != orders]
    return text + (f" ({'; '.join(others)})" if others else "") + "."


def shortened(entry: Entry) -> list[str]:
    """How a run departs from the benchmark as published, in words; empty if it does not."""
    settings, own = entry.settings, own_settings(entry.benchmark)
    per_class, scale = settings.get("per_class"), settings.get("epochs_scale", 1.0)
    changed = [f"{per_class} training images a class"] if per_class else []
    changed += [f"classes {settings['classes']} alone"] if settings.get("classes") else []
    changed += [f"schedule × {scale:g}"] if scale != 1 else []
    changed += [f"the first {settings['experiences']} experiences alone"] if settings.get("experiences") else []
    if own is None:
        return changed
    pairs: list[tuple[str, Any, Any]] = [("backbone", settings.get("backbone"), own.backbone)]
    pairs.append(("px", settings.get("image_size"), own.image_size))
    pairs.append(("epochs", settings["rest"]["epochs"], own.rest.epochs))
    first = (settings["first"]["epochs"], own.first.epochs)
    if first != (settings["rest"]["epochs"], own.rest.epochs):
        pairs.append(("epochs in the first experience", *first))
    pairs.append(("in memory", (settings.get("memory") or {}).get("capacity"), own.memory))
    return changed + [
        f"{found} {what} instead of {want}" for what, found, want in pairs if found not in (None, want)
    ]


def unequal(entries: Sequence[Entry], reference: Entry) -> list[str]:
    """A sentence per learner that was not run under the conditions of the reference."""
    wanted = flat(reference.settings)
    sentences = []
    for entry in entries:
        found = flat(entry.settings)
        both_remember = bool(entry.settings.get("memory") and reference.settings.get("memory"))
        names = EQUAL_FOR_ALL + (EQUAL_WITH_MEMORY if both_remember else ())
        differing = [f"{n} {found.get(n)}" for n in names if found.get(n) != wanted.get(n)]
        points = entry.runs[0].report.evaluated_after
        if entry.learner != "joint" and points != reference.runs[0].report.evaluated_after:
            differing.append(f"{len(points)} evaluations")
        threads = found.get("threads"), wanted.get("threads")
        if None not in threads and threads[0] != threads[1]:
            differing.append(f"threads {threads[0]}")
        if not differing and _other_stream(entry, reference):
            differing.append("learned other data")
        if differing:
            sentences.append(f"Unequal conditions: {entry.title} has {', '.join(differing)}.")
    return sentences


def _other_stream(entry: Entry, reference: Entry) -> bool:
    """Whether two learners were given other data on the same occasion; joint training has it all as one lesson."""
    streams = {run.occasion: run.settings.get("stream") for run in reference.runs}
    return "joint" not in (entry.learner, reference.learner) and any(
        streams.get(run.occasion, run.settings.get("stream")) != run.settings.get("stream") for run in entry.runs
    )
