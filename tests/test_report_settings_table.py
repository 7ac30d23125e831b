"""The table of settings."""

from __future__ import annotations

from pathlib import Path

from fake_reports import RECIPE, make, write
from triphase.bench.report.group import group_runs
from triphase.bench.report.settings_table import what_was_run


def test_joint_training_is_shown_with_the_schedule_that_it_had(tmp_path: Path) -> None:
    runs = [make(learner, 0.5, rest={"epochs": 9, "n_mbe": 7}) for learner in ("tpc", "joint")]
    tpc, joint = what_was_run(group_runs([write(tmp_path, *runs)])).records
    assert (tpc["epochs"], tpc["minibatch"].split(":")[0]) == (9, "7")
    assert (joint["epochs"], joint["minibatch"].split(":")[0]) == (RECIPE["epochs"], str(RECIPE["n_mbe"]))
