"""RunOptions: one dataclass for flags, sweeps and reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from triphase.bench.benchmarks import find
from triphase.bench.run.options import RunOptions, flag, option_infos, recorded
from triphase.bench.run.results import flatten
from triphase.bench.run.setup import prepare
from triphase.cli.bench import bench
from triphase.cli.run_options import options_from
from triphase.errors import InvalidValue

texts = st.sampled_from(["tpc", "single"])
given_options = st.builds(
    RunOptions,
    order=st.integers(0, 5),
    seed=st.integers(0, 9),
    epochs_scale=st.floats(0.01, 3),
    lr=st.none() | st.floats(1e-4, 1),
    weight_decay=st.none() | st.just(0.0),
    memory=st.none() | st.integers(0, 100),
    replay=st.sampled_from(["raw", "latent", "none"]),
    norm=st.sampled_from(["bn", "brn"]),
    weights=st.none() | st.just(Path("a b/c")),
    precision=st.sampled_from(["float32", "bfloat16", "float16"]),
    compiled=st.booleans(),
    skip_bad=st.booleans(),
    experiences=st.none() | st.integers(1, 3),
    learner_options=st.fixed_dictionaries({}, optional={"t": st.floats(0, 1), "masking": texts}).map(
        lambda own: tuple(own.items())
    ),
)


@settings(max_examples=30)
@given(given_options)
def test_the_command_line_of_a_job_gives_all_its_options(options: RunOptions) -> None:
    run = typer.main.get_command(bench).commands["run"]  # type: ignore[attr-defined]
    values = run.make_context("run", ["digits-5", *options.arguments()]).params
    assert options_from(dict(values)) == options


def test_every_option_has_a_flag_for_runs_and_sweeps_leave_out_what_they_set() -> None:
    commands = typer.main.get_command(bench).commands  # type: ignore[attr-defined]
    for name, info in option_infos().items():
        found = {command: flag(name) in _flags(commands[command]) for command in ("run", "sweep", "ablate")}
        by_sweep = info.sweep != "per job" or name == "learner_options"
        assert found == {"run": True, "sweep": by_sweep, "ablate": by_sweep}, name
        assert info.help.endswith("."), name


def _flags(command: Any) -> set[str]:
    return {word for parameter in command.params for word in parameter.opts}


def test_what_is_recorded_of_an_option_is_in_the_settings_of_a_run(tmp_path: Path) -> None:
    changed: dict[str, Any] = {
        "per_class": 15,
        "labelled": 0.5,
        "epochs": 3,
        "classes": "0-9",
        "experiences": 2,
        "memory": 20,
    }
    report = prepare(find("digits-5"), RunOptions(**changed), Path()).run(tmp_path / "run")
    settings = flatten(report.settings)
    assert {name for name in recorded() if name not in settings} == {"first_from", "engine"}  # torch if absent
    found = {name: settings[option_infos()[name].recorded_as[0]] for name in changed}
    assert found == changed


@pytest.mark.parametrize(
    ("given_values", "words"),
    [
        ({"epochs": 0}, "--epochs must be at least 1, got 0"),
        ({"order": -1}, "--order must not be negative, got -1"),
        ({"per_class": 0}, "--per-class must be at least 1"),
        ({"replay": "cooked"}, "--replay is one of raw, latent, none, got 'cooked'"),
        ({"classes": "9-0"}, "--classes takes different numbers"),
        ({"epochs": 3, "epochs_scale": 0.5}, "contradict each other"),
        ({"learner_options": (("x", 1),)}, "tpc has no option x"),
    ],
)
def test_options_that_make_no_sense_are_refused(given_values: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        RunOptions(**given_values)
