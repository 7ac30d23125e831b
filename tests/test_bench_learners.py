"""The learners by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from triphase.bench.benchmarks import find
from triphase.bench.learners import LEARNER_SPECS
from triphase.bench.run.options import RunOptions
from triphase.bench.run.setup import prepare
from triphase.errors import InvalidValue

digits = find("digits-5")


@pytest.mark.parametrize("name", LEARNER_SPECS)
def test_each_learner_is_made_as_it_is_called(name: str) -> None:
    setup = prepare(digits, RunOptions(learner=name), Path())
    assert type(setup.learner) is LEARNER_SPECS[name].make
    assert setup.learner.state_dict()["settings"]["learner"] == name
    has_memory = getattr(setup.learner, "memory", None) is not None
    assert has_memory == (LEARNER_SPECS[name].memory != "unused")
    assert len(setup.stream.experiences) == (1 if name == "joint" else 5)


@pytest.mark.parametrize("name", [name for name, spec in LEARNER_SPECS.items() if spec.memory == "needed"])
def test_a_learner_that_replays_needs_a_memory(name: str) -> None:
    with pytest.raises(InvalidValue, match=f"The learner {name} needs a memory; give --memory"):
        prepare(digits, RunOptions(learner=name, replay="none"), Path())
