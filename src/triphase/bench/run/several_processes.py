"""What the processes of one run must agree on: settings, versions, and the state that they start from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triphase import state as files
from triphase.bench.run.results import Report, flatten
from triphase.errors import Mismatch
from triphase.processes import Processes
from triphase.state import State

MAY_DIFFER = ("machine", "threads", "device")


def check_same_in_all(settings: Mapping[str, Any], processes: Processes) -> None:
    """Refuse a process whose settings or versions are not those of the first one, and say which."""
    mine: dict[str, Any] = json.loads(json.dumps(flatten(settings)))
    first: dict[str, Any] = json.loads(processes.from_first(json.dumps(mine).encode()))
    for name in sorted((mine.keys() | first.keys()) - set(MAY_DIFFER)):
        if mine.get(name) != first.get(name):
            what = (
                "another stream"
                if name == "stream"
                else f"{name} {mine.get(name)!r} instead of {first.get(name)!r}"
            )
            raise Mismatch(
                f"The processes of a run must be alike, and this one has {what}, unlike the first: start all of "
                "them by the same command, with the same data and versions."
            )


def report_in_all(report: Report | None, processes: Processes) -> Report | None:
    """The report that the first process has found, if it has found one."""
    if processes.size == 1:
        return report
    document = json.loads(processes.from_first(json.dumps(None if report is None else report.to_json()).encode()))
    return None if document is None else Report.from_json(document)


def state_in_all(state: State | None, processes: Processes) -> State | None:
    """The checkpoint that the first process has read, if there is one: the others may not see its disk."""
    if processes.size == 1:
        return state
    blob = processes.from_first(b"" if state is None else files.to_bytes(state))
    return state if processes.is_first or not blob else files.from_bytes(blob, Path("checkpoint"))
