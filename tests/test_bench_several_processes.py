"""What the processes of a run agree on before they begin."""

import pytest
import torch

from shared_runs import in_threads
from triphase.bench.run.results import Report
from triphase.bench.run.several_processes import check_same_in_all, report_in_all, state_in_all
from triphase.errors import Mismatch
from triphase.processes import Processes


def test_a_process_with_other_settings_says_which() -> None:
    settings = {"seed": 0, "rest": {"lr": 0.1}, "threads": 1, "torch": "2.13.0"}
    others = [settings, {**settings, "threads": 2}, {**settings, "rest": {"lr": 0.2}}]

    def check(processes: Processes) -> str:
        try:
            check_same_in_all(others[processes.rank], processes)
        except Mismatch as error:
            return str(error)
        return ""

    first, threads, lr = in_threads(3, check)
    assert first == threads == "" and "rest.lr 0.2 instead of 0.1" in lr


def test_all_processes_get_what_the_first_one_has_read() -> None:
    report = Report({"seed": 0}, ["a"], accuracy=[[0.5]], evaluated_after=[1], n_seen=[1])
    state = {"head": {"weight": torch.ones(2)}, "known": [0]}

    def read(processes: Processes) -> tuple[object, ...]:
        mine = (report, state) if processes.is_first else (None, None)
        found = report_in_all(mine[0], processes), state_in_all(mine[1], processes)
        return *found, report_in_all(None, processes), state_in_all(None, processes)

    for found_report, found_state, no_report, no_state in in_threads(2, read):
        assert found_report == report and no_report is None and no_state is None
        assert isinstance(found_state, dict) and found_state["known"] == [0]
        assert torch.equal(found_state["head"]["weight"], torch.ones(2))


@pytest.mark.parametrize("found", [None, Report({}, ["a"])], ids=["nothing", "a report"])
def test_alone_nothing_is_sent(found: Report | None) -> None:
    assert report_in_all(found, Processes()) is found
