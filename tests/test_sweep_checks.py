"""Checks before a sweep starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from triphase import state as files
from triphase.bench.benchmarks import find
from triphase.bench.run.benchmark_stream import make_stream
from triphase.bench.run.options import RunOptions
from triphase.bench.sweep.checks import check_data, check_options, check_stream, fixed_options, record_options
from triphase.bench.sweep.grid import Sweep
from triphase.errors import Mismatch


def test_a_sweep_is_not_continued_over_other_data(tmp_path: Path) -> None:
    schedule = Sweep(tmp_path, ("digits-5",), ("ncm",), (0, 1), RunOptions(per_class=9))
    (cell,) = schedule.jobs({})
    files.make_directory(cell.directory)
    files.write_json(cell.directory / "report.json", {"settings": {"stream": "of other data"}})
    with pytest.raises(Mismatch, match="other data"):
        check_data(schedule, Path())


def test_a_run_over_other_data_is_refused(tmp_path: Path) -> None:
    schedule = Sweep(tmp_path, ("digits-5",), ("ncm",), (0,))
    (cell,) = schedule.jobs({})
    now, other = (make_stream(find("digits-5"), RunOptions(per_class=n), Path()) for n in (None, 9))
    check_stream(cell, now)
    files.make_directory(cell.directory)
    files.write_json(cell.directory / "report.json", {"settings": {"stream": now.fingerprint}})
    check_stream(cell, now)
    with pytest.raises(Mismatch, match=r"ncm-order0 was run on other data than these; delete it, or give another"):
        check_stream(cell, other)


def test_a_folder_is_held_to_one_set_of_conditions(tmp_path: Path) -> None:
    record_options(tmp_path, fixed_options(RunOptions(epochs_scale=0.5), {}))
    check_options(tmp_path, fixed_options(RunOptions(epochs_scale=0.5, order=2, lr=0.3), {}))
    with pytest.raises(Mismatch, match=r"holds runs with epochs_scale 0\.5 \(now 0\.1\); give another --out"):
        check_options(tmp_path, fixed_options(RunOptions(epochs_scale=0.1), {}))
    with pytest.raises(Mismatch, match=r"t not given \(now 0\.3\)"):
        check_options(tmp_path, fixed_options(RunOptions(epochs_scale=0.5), {"t": 0.3}))
