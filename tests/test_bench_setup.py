"""From a benchmark and options to a run: model, learner and weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from triphase.bench.benchmarks import BENCHMARKS, find
from triphase.bench.learners import LEARNER_SPECS
from triphase.bench.run.options import RunOptions
from triphase.bench.run.setup import _weights, prepare
from triphase.context import Context
from triphase.errors import InvalidValue, TriphaseWarning
from triphase.processes import Processes

digits = find("digits-5")


def test_all_learners_start_from_the_same_weights_and_conditions() -> None:
    setups = [prepare(digits, RunOptions(learner=name, seed=5), Path()) for name in LEARNER_SPECS]
    reference = setups[0]
    for setup in setups[1:]:
        for name, tensor in reference.learner.model.state_dict().items():
            assert tensor.equal(setup.learner.model.state_dict()[name])
        assert setup.first == reference.first
        n_mb = setup.rest.n_mbe + setup.rest.n_mbr  # without memory, the minibatch is as large
        assert n_mb == reference.rest.n_mbe + reference.rest.n_mbr
        assert replace(setup.rest, n_mbe=1, n_mbr=0) == replace(reference.rest, n_mbe=1, n_mbr=0)


def test_the_seed_decides_the_initial_weights() -> None:
    one, two = (prepare(digits, RunOptions(seed=seed), Path()).learner.model.state_dict() for seed in (0, 1))
    assert any(not one[name].equal(two[name]) for name in one)


def test_missing_weights_are_not_passed_over_in_silence(tmp_path: Path) -> None:
    with pytest.warns(TriphaseWarning, match=r"mobilenet_v1_folded.safetensors is not in .*starts at random"):
        assert _weights(BENCHMARKS["core50-41"], RunOptions(), tmp_path) is None
    assert _weights(BENCHMARKS["core50-41"], RunOptions(backbone="resnet18"), tmp_path) is None
    assert _weights(BENCHMARKS["cifar100-11"], RunOptions(), tmp_path) is None


def test_minibatches_that_processes_cannot_share_are_refused_before_the_run_has_a_folder() -> None:
    context, small = Context(processes=Processes(0, 2)), RunOptions(learner="tpc", n_mbe=1, n_mbr=0)
    with pytest.raises(InvalidValue, match="2 processes cannot share minibatches of 1 samples"):
        prepare(digits, small, Path(), context)
    prepare(digits, replace(small, n_mbr=1), Path(), context)
    prepare(replace(digits, pretrained=True), replace(small, learner="slda"), Path(), context)


def test_another_engine_is_recorded_and_learns_the_same(tmp_path: Path) -> None:
    options = {"per_class": 15, "epochs": 3, "experiences": 2}
    torchs, onnxs = (
        prepare(find("digits-5"), RunOptions(engine=engine, **options), Path()).run(tmp_path / engine)  # type: ignore[arg-type]
        for engine in ("torch", "onnx")
    )
    assert "engine" not in torchs.settings and onnxs.settings["engine"].startswith("onnxruntime ")
    assert abs(torchs.final_accuracy - onnxs.final_accuracy) < 0.05
