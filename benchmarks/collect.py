"""The results of every run in the given folders, one line for each, as in benchmarks/results/comparison.

python benchmarks/collect.py runs/stream2 runs/stream2-derpp > stream2.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from triphase import state as files

OPTIONS: tuple[str, ...] = (
    "bc",
    "masking",
    "share_3",
    "bc_scope",
    "eps",
    "reset_momentum",
    "predict_over",
    "norm",
    "alpha",
    "beta",
)
OPTIONS += ("stage2_epochs", "mean", "n_projected", "shrinkage", "weight", "empty_phase1", "classes")


def line_of(report: Path, name: str) -> dict[str, Any]:
    """The settings that matter, and the curve in percent."""
    run_report = files.read_json(report)
    settings = run_report["settings"]
    recipe = settings["first" if settings["learner"] == "joint" else "rest"]
    curve = [fmean(value for value in row if value is not None) for row in run_report["accuracy"]]
    line = {"run": name, "learner": settings["learner"], "order": settings["order"], "seed": settings["seed"]}
    line |= {key: recipe[key] for key in ("lr", "csf_lr", "epochs", "n_mbe", "n_mbr", "weight_decay", "trainable")}
    line |= {"memory": (settings.get("memory") or {}).get("capacity", 0)}
    line |= {"options": {key: settings[key] for key in OPTIONS if key in settings}}
    line |= {"amca": round(100 * run_report["amca"], 2), "final": round(100 * run_report["final_accuracy"], 2)}
    line |= {
        "evaluated_after": run_report["evaluated_after"],
        "accuracy": [round(100 * value, 2) for value in curve],
    }
    line |= {"train_seconds": round(run_report["train_seconds"], 1), "stream": settings["stream"]}
    return line | {"versions": run_report["versions"]}


def main() -> None:
    """Print a JSON list, one run in a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    lines = []
    for folder in parser.parse_args().folders:
        for report in sorted(folder.rglob("report.json")):
            if not report.parent.name.startswith("first-"):  # a beginning that other runs share
                name = f"{folder.resolve().name}/{report.parent.relative_to(folder).as_posix()}"
                lines.append(json.dumps(line_of(report, name)))
    print("[\n" + ",\n".join(lines) + "\n]")


if __name__ == "__main__":
    main()
