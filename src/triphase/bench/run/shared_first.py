"""The first experience, learned once: a run over E_1 alone whose weights other runs start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from triphase import state as files
from triphase.bench.benchmarks import Benchmark
from triphase.bench.learners import shares_first
from triphase.bench.run.options import RunOptions, upgraded
from triphase.bench.run.results import Report, flatten
from triphase.data.recipe import Recipe
from triphase.data.streams import Stream
from triphase.errors import BadData, InvalidValue, Mismatch
from triphase.learners.training import load_blocks
from triphase.models import SplitClassifier


def first_experiences(stream: Stream, n: int) -> Stream:
    """The first n experiences, evaluated at their end too; the head is that of the whole stream."""
    n = min(n, len(stream.experiences))
    points = sorted({*(i for i in stream.evaluate_after if i < n), n})
    part = replace(stream, experiences=stream.experiences[:n], evaluate_after=tuple(points))
    if part.evaluation == "all":
        return part
    tested = (part.test.labels < part.n_seen[-1]).nonzero().view(-1)  # no latents of classes that are not tested
    return replace(part, test=part.test.select(tested))


def expected_settings(
    benchmark: Benchmark, options: RunOptions, stream: Stream, first: Recipe, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings that a run over E_1 must have for a run with these options to start from it."""
    if not shares_first(options.learner, options.own, pretrained=benchmark.pretrained):
        raise InvalidValue(
            f"The learner {options.learner} does not train its first experience by plain cross-entropy alone, "
            "so no other run can do it; leave out --first-from."
        )
    expected = {"learner": "finetune", "experiences": 1, **settings, "first": first.to_json()}
    expected |= {"seed": options.seed, "pretrained": benchmark.pretrained}
    return expected | {"stream": first_experiences(stream, 1).fingerprint}


def load_first(model: SplitClassifier, run: Path, expected: Mapping[str, Any]) -> Report:
    """Load the weights of a finished run over E_1 into the model; returns its report."""
    if not (run / "report.json").exists():
        raise BadData(
            f"{run} holds no finished run to take the first experience from; make one by "
            f"`triphase bench run ... --learner finetune --experiences 1 --out {run}`."
        )
    saved = flatten(upgraded(files.read_json(run / "settings.json")))
    for name, wanted in flatten(expected).items():
        if saved.get(name) != wanted:
            what = "another stream" if name == "stream" else f"{name} {saved.get(name)!r} instead of {wanted!r}"
            raise Mismatch(f"{run} cannot give the first experience: it has {what}; give another --first-from.")
    load_blocks(model, files.load(run / "weights.safetensors"))
    return Report.from_json(files.read_json(run / "report.json"))
