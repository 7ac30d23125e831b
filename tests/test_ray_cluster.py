"""A sweep on a Ray cluster of two nodes, one of which is killed while both are at work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from triphase import state as files
from triphase.bench.benchmarks import find
from triphase.bench.run.options import RunOptions
from triphase.bench.run.setup import prepare
from triphase.bench.sweep.cluster import ray_tasks
from triphase.bench.sweep.cluster.ray_tasks import RayTasks
from triphase.bench.sweep.grid import Sweep
from triphase.bench.sweep.scheduler import Progress, execute
from triphase.errors import Interrupted, Unreachable

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes with one CPU each, the second of which can be removed."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_worker_niceness", "0")  # as nice as the test, no more
    made = Cluster(initialize_head=True, head_node_args=NODE)
    made.add_node(**NODE)
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    monkeypatch.setattr(ray_tasks, "POLL_SECONDS", 0.5)
    yield made
    made.shutdown()


def content(run: Path) -> tuple[object, ...]:
    """What must be equal: every bit of the weights, the log of events, and the report but for the times in it."""
    tensors: dict[str, Tensor] = {}
    tree = files.split_tensors(files.load(run / "weights.safetensors"), tensors, "")
    weights = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
    report = json.loads((run / "report.json").read_text())
    timeless = {name: value for name, value in report.items() if "seconds" not in name and name != "profile"}
    return tree, weights, (run / "events.jsonl").read_bytes(), timeless


def test_a_node_that_is_killed_loses_nothing_and_every_run_is_as_on_one_computer(
    cluster: Any, tmp_path: Path
) -> None:
    base = RunOptions(epochs=30, lr=0.01)
    schedule = Sweep(tmp_path / "out", ("digits-5",), ("tpc", "replay"), (0,), base)
    summary, data = tmp_path / "out" / "sweep.json", tmp_path / "data"
    shares: list[dict[str, float]] = []

    def on_cluster() -> RayTasks:
        return RayTasks("ray", tmp_path / "out", data, str(tmp_path / "storage"), save_every=0.5)

    def stop_in_the_middle(progress: Progress) -> None:
        if any(0 < share < 1 for share in progress.running.values()):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="Run again to continue"):
        execute(schedule, summary, on_cluster(), on_progress=stop_in_the_middle)

    def kill_a_node(progress: Progress) -> None:
        if len(progress.running) == 2 and any(0 < share < 1 for share in progress.running.values()) and not shares:
            shares.append({job.title: share for job, share in progress.running.items()})
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

    done = execute(schedule, summary, on_cluster(), on_progress=kill_a_node)
    assert shares, "two runs were under way when the node was killed"
    assert not done.failed and len(done.results) == len(schedule.jobs(done.results)) == 3
    assert [w for w in done.warnings if "was lost" in w], done.warnings
    assert (tmp_path / "storage").exists() and not list((tmp_path / "storage").iterdir()), "copies are removed"
    for job in done.results:
        prepare(find(job.benchmark), job.options, data).run(here := tmp_path / "here" / job.directory.name)
        assert content(here) == content(job.directory), job.title


def test_a_cluster_that_ends_is_named(cluster: Any, tmp_path: Path) -> None:
    schedule = Sweep(tmp_path, ("digits-5",), ("slda",), (0,))
    back_end = RayTasks("ray", tmp_path, tmp_path / "data", str(tmp_path / "storage"))

    def end_the_cluster(progress: Progress) -> None:
        cluster.head_node.kill_gcs_server(check_alive=False)

    with pytest.raises(Unreachable, match="is gone; what was saved is in .* run again to continue"):
        execute(schedule, tmp_path / "sweep.json", back_end, on_progress=end_the_cluster)
