"""Caveats of a report: class orders, settings other than the benchmark's, unequal conditions, tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from triphase.bench.benchmarks import find_or_none
from triphase.bench.report.group import Group, GroupedRuns
from triphase.bench.report.titles import benchmark_title
from triphase.bench.run.options import default, option_infos, recorded
from triphase.bench.run.results import flatten
from triphase.errors import few

EQUAL = (*recorded("equal"), "rest.momentum", "rest.lr_schedule")
EQUAL_WITH_MEMORY = (*EQUAL, *recorded("equal with memory"))


def conditions(grouped: GroupedRuns) -> list[str]:
    """One caveat per benchmark, one on runs that are not finished, and one on those that diverged."""
    caveats = []
    for name in grouped.benchmarks:
        reference, shown = _reference(grouped, name)
        sentences = [_setting(reference), _orders(shown, reference), *_departures(reference, shown)]
        if (ceiling := fmean(run.report.ceiling for run in reference.runs)) < 1:
            sentences.append(f"Perfect learning would reach an AMCA of {100 * ceiling:.1f} %.")
        if name.startswith("cifar100") and reference.settings.get("pretrained"):
            sentences.append("The classes of CIFAR-100 overlap those of the pre-training.")
        caveats.append(f"{benchmark_title(name)}: {' '.join(sentences)}")
    if grouped.unfinished:
        caveats.append(f"Not finished, and left out: {few(grouped.unfinished)}.")
    if grouped.diverged:
        caveats.append(f"Diverged, and left out: {few(grouped.diverged)}.")
    return caveats


def departures(grouped: GroupedRuns) -> list[str]:
    """The caveats under every table: where a benchmark was not run as published."""
    found = {name: _departures(*_reference(grouped, name)) for name in grouped.benchmarks}
    return [f"{benchmark_title(name)}: {' '.join(sentences)}" for name, sentences in found.items() if sentences]


def changed_settings(group: Group) -> list[str]:
    """How a group departs from the benchmark as published, in words; empty if it does not."""
    changed = _changed_options(group.settings)
    own = find_or_none(group.benchmark)
    if own is None:
        return changed
    first, rest = group.settings["first"]["epochs"], group.settings["rest"]["epochs"]
    found: list[tuple[str, Any, Any]] = [
        ("backbone", group.settings.get("backbone"), own.backbone),
        ("px", group.settings.get("image_size"), own.image_size),
        ("epochs", rest, own.rest.epochs),
    ]
    if (first, own.first.epochs) != (rest, own.rest.epochs):
        found.append(("epochs in the first experience", first, own.first.epochs))
    found.append(("in memory", (group.settings.get("memory") or {}).get("capacity"), own.memory))
    return changed + [
        f"{value} {what} instead of {want}" for what, value, want in found if value not in (None, want)
    ]


def unequal(groups: Sequence[Group], reference: Group) -> list[str]:
    """A sentence per learner that was not run under the conditions of the reference."""
    sentences = []
    for group in groups:
        differing = _differing(group, reference)
        if not differing and _has_other_stream(group, reference):
            differing.append("learned other data")
        if differing:
            sentences.append(f"Unequal conditions: {group.title} has {', '.join(differing)}.")
    return sentences


def _reference(grouped: GroupedRuns, benchmark: str) -> tuple[Group, list[Group]]:
    """The group whose settings stand for all, TPC's if there is one, and those in the main tables."""
    found = grouped.of(benchmark)
    shown = [group for group in found if group.in_main_tables] or found
    return next((group for group in shown if group.learner == "tpc"), shown[0]), shown


def _departures(reference: Group, shown: Sequence[Group]) -> list[str]:
    changed = changed_settings(reference)
    sentences = [f"Not the benchmark's own setting: {', '.join(changed)}."] if changed else []
    sentences += unequal(shown, reference)
    tuned = [group.title for group in shown if any(run.tuned_here for run in group.runs)]
    return sentences + ([f"Tuned on the very order that is shown: {', '.join(tuned)}."] if tuned else [])


def _setting(group: Group) -> str:
    settings = group.settings
    first, rest, memory = settings["first"]["epochs"], settings["rest"]["epochs"], settings.get("memory")
    parts = [f"{settings['backbone']} at {settings['image_size']} px"] if "backbone" in settings else []
    parts.append(f"{rest} epochs" + (f" ({first} in the first experience)" if first != rest else ""))
    parts.append(f"memory of {memory['capacity']} ({memory['store']})" if memory else "no memory")
    points, of = group.runs[0].report.evaluated_after, group.runs[0].report.evaluated_after[-1]
    parts += [f"evaluated after {len(points)} of {of} experiences"] if len(points) < of else []
    return ", ".join(parts) + "."


def _orders(groups: Sequence[Group], reference: Group) -> str:
    orders = reference.orders
    text = "One class order:" if len(orders) == 1 else "Mean and standard deviation over class orders"
    text += " " + ", ".join(map(str, orders))
    others = [f"{g.title}: {', '.join(map(str, g.orders))}" for g in groups if g.orders != orders]
    return text + (f" ({'; '.join(others)})" if others else "") + "."


def _changed_options(settings: Mapping[str, Any]) -> list[str]:
    """The caveats of options that are not at their default."""
    found = []
    for name, info in option_infos().items():
        value = settings.get(info.recorded_as[0]) if info.caveat else None
        if value is not None and value != default(name):
            found.append(info.caveat.format(value))
    return found


def _differing(group: Group, reference: Group) -> list[str]:
    """The settings, with their values, in which a group differs from the reference and should not."""
    found, wanted = flatten(group.settings), flatten(reference.settings)
    both_replay = bool(group.settings.get("memory") and reference.settings.get("memory"))
    names = EQUAL_WITH_MEMORY if both_replay else EQUAL
    differing = [f"{n} {found.get(n)}" for n in names if found.get(n) != wanted.get(n)]
    points = group.runs[0].report.evaluated_after
    if not group.is_joint and points != reference.runs[0].report.evaluated_after:
        differing.append(f"{len(points)} evaluations")
    threads = found.get("threads"), wanted.get("threads")
    if None not in threads and threads[0] != threads[1]:
        differing.append(f"threads {threads[0]}")
    return differing


def _has_other_stream(group: Group, reference: Group) -> bool:
    """Whether paired runs learned different data; joint training has all of it as one experience."""
    streams = {run.order_and_seed: run.settings.get("stream") for run in reference.runs}
    return not (group.is_joint or reference.is_joint) and any(
        streams.get(run.order_and_seed, run.settings.get("stream")) != run.settings.get("stream")
        for run in group.runs
    )
