"""The first experience, learned once: a run over E_1 alone whose weights other learners take over."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from triphase import state as files
from triphase.bench.run.results import Report
from triphase.errors import BadData, Mismatch
from triphase.learners.training import load_blocks
from triphase.models import SplitClassifier


def take_over(model: SplitClassifier, run: Path, expected: Mapping[str, Any]) -> Report:
    """Give the model the weights of a finished run over E_1 that has the settings expected; returns its report."""
    if not (run / "report.json").exists():
        raise BadData(
            f"{run} holds no finished run to take the first experience from; make one by "
            f"`triphase bench run ... --learner finetune --experiences 1 --out {run}`."
        )
    saved = dict(_flat(files.read_json(run / "settings.json")))
    for name, wanted in _flat(expected):
        if saved.get(name) != wanted:
            what = "another stream" if name == "stream" else f"{name} {saved.get(name)!r} instead of {wanted!r}"
            raise Mismatch(f"{run} cannot give the first experience: it has {what}; give another --first-from.")
    load_blocks(model, files.load(run / "weights.safetensors"))
    return Report.from_json(files.read_json(run / "report.json"))


def digest(path: Path) -> str:
    """Two files of weights are the same exactly if this is."""
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
