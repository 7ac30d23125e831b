"""The paper's results as printed."""

from __future__ import annotations

import pytest

from triphase.bench.report import paper


def test_brackets_and_overall_are_those_that_the_paper_prints() -> None:
    printed = {"ar1": "0.95 0.97 0.91 0.98", "bic": "0.78 0.81 1.00 0.51", "derpp": "0.97 0.94 0.93 0.99"}
    for learner, brackets in printed.items():
        found = [f"{paper.ratio(paper.AMCA, learner, benchmark):.2f}" for benchmark in paper.COLUMNS]
        assert found == brackets.split()
    for name, table in (("amca", paper.AMCA), ("final", paper.FINAL), ("time", paper.SECONDS)):
        for learner, overall in paper.OVERALL[name].items():
            mean = sum(paper.ratio(table, learner, benchmark) for benchmark in paper.COLUMNS) / 4
            assert mean == pytest.approx(overall, abs=0.011)


def test_the_ablation_starts_from_the_main_table() -> None:
    assert paper.ABLATION["core50-41", True][""] == paper.AMCA["tpc"]["core50-41"]
