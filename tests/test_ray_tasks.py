"""The Ray back end, with something in the place of Ray that executes tasks at once and loses some of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from command import Call
from triphase.bench.sweep import scheduler
from triphase.bench.sweep.cluster import node, ray_tasks
from triphase.bench.sweep.cluster.ray_tasks import RayTasks, Resources
from triphase.bench.sweep.grid import Sweep
from triphase.bench.sweep.scheduler import execute
from triphase.errors import TriphaseError, TriphaseWarning, Unreachable


class FakeRay:
    """What RayTasks uses of Ray; a task is executed when it is given, and its messages are kept."""

    class RayError(Exception):
        pass

    class RayTaskError(RayError):
        pass

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(RayError=self.RayError, RayTaskError=self.RayTaskError)
        self.messages: list[dict[str, Any]] = []
        self.asked: dict[str, Any] = {}
        self.lose: Callable[[dict[str, Any]], Exception | None] = lambda message: None
        self.change: dict[str, Any] = {}  # what a node sees instead
        self.is_connected = True

    def remote(self, function: Callable[[str], str]) -> Any:
        def call(text: str) -> _Reference:
            message = json.loads(text)
            self.messages.append(message)
            lost = self.lose(message)
            return _Reference(lost or function(json.dumps(message | self.change)))

        def options(**asked: Any) -> SimpleNamespace:
            self.asked = asked
            return SimpleNamespace(remote=call)

        return SimpleNamespace(options=options)

    def wait(self, references: Sequence[Any], *, num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return list(references), []

    def get(self, reference: Any) -> str:
        if isinstance(reference.answer, Exception):
            raise reference.answer
        return str(reference.answer)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 3.0}}, {"Alive": False, "Resources": {"CPU": 9.0}}]

    def cancel(self, reference: Any) -> None:
        pass

    def shutdown(self) -> None:
        self.is_connected = False


@dataclass(eq=False)
class _Reference:
    answer: str | Exception


@pytest.fixture
def ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """No Ray, no training, and a node that has a scratch folder of its own."""
    fake = FakeRay()
    child = (sys.executable, "-S", str(Path(__file__).with_name("fake_run.py")))
    monkeypatch.setattr(node, "CHILD", child)
    monkeypatch.setattr(node, "scratch_folder", lambda: tmp_path / "scratch")
    monkeypatch.setattr(node, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(ray_tasks, "_find", lambda address: (address, "127.0.0.1:1"))
    monkeypatch.setattr(ray_tasks, "_connect", lambda address, place: fake)
    monkeypatch.setattr(scheduler, "POLL", 0.01)
    return fake


def back_end(tmp_path: Path, **options: Any) -> RayTasks:
    return RayTasks("ray", tmp_path / "out", tmp_path / "data", str(tmp_path / "storage"), **options)


def test_runs_that_are_lost_with_their_node_are_tried_again_until_all_are_done(
    ray: FakeRay, tmp_path: Path
) -> None:
    schedule = Sweep(tmp_path / "out", ("digits-5",), ("replay", "slda"), (0,), lrs=(0.1,))
    lost = [FakeRay.RayError("Task failed because its node is dead. Node IP: 1.2.3.4") for _ in range(4)]
    ray.lose = lambda message: lost.pop() if lost else None
    done = execute(schedule, tmp_path / "out" / "sweep.json", back_end(tmp_path, resources=Resources(cpus=1.5)))
    names = {job.directory.name for job in done.results}
    assert names == {"first-order0-lr0.1", "replay-order0-lr0.1", "slda-order0"}
    assert not done.failed and len(ray.messages) == 3 + 4 and not ray.is_connected
    assert "was lost (Task failed because its node is dead) and is tried again." in done.warnings[0]
    assert ray.asked == {"num_cpus": 1.5, "num_gpus": 0, "memory": None, "max_retries": 0}
    assert ray.messages[0]["threads"] == 1 and ray.messages[-1]["first"] == "digits-5/first-order0-lr0.1"
    assert not list((tmp_path / "storage").iterdir()), "nothing is left that only unfinished runs need"


def test_a_run_that_is_lost_again_and_again_fails(ray: FakeRay, tmp_path: Path) -> None:
    ray.lose = lambda message: FakeRay.RayError("The node is dead")
    schedule = Sweep(tmp_path / "out", ("digits-5",), ("slda",), (0,))
    done = execute(schedule, tmp_path / "out" / "sweep.json", back_end(tmp_path))
    assert list(done.failed.values()) == ["The node is dead"]
    assert len(ray.messages) == scheduler.TRIES["lost"]


def test_data_are_shipped_when_a_node_lacks_them(ray: FakeRay, tmp_path: Path) -> None:
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "1.png").write_text("a photo")
    schedule = Sweep(tmp_path / "out", ("folder:2/1-1",), ("slda",), (0,))

    def move_data(message: dict[str, Any]) -> None:
        ray.change = {"data": message["data"] | {"root": str(tmp_path / "nowhere")}}

    ray.lose = move_data
    done = execute(schedule, tmp_path / "out" / "sweep.json", back_end(tmp_path))
    assert len(done.results) == 1 and len(ray.messages) == 2, "asked for the data, then went on"
    fingerprint = ray.messages[0]["data"]["fingerprint"]
    assert (tmp_path / "storage" / "data" / f"{fingerprint}.tar").exists()
    assert (tmp_path / "scratch" / "data" / fingerprint / "a" / "1.png").read_text() == "a photo"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"versions": {"triphase": "9.9"}},
            "has triphase .*, and the sweep was begun with 9.9: .* Install the same on all nodes",
        ),
        ({"storage": "memory://elsewhere"}, "does not see what this computer wrote to .* give --storage"),
        ({"storage": "/proc/nowhere"}, "does not see what this computer wrote to .* give --storage"),
    ],
    ids=["versions", "another storage", "a folder that is not shared"],
)
def test_a_node_on_which_no_run_could_be_right_stops_the_sweep_with_a_sentence(
    change: dict[str, Any], sentence: str, ray: FakeRay, tmp_path: Path
) -> None:
    ray.change = change
    schedule = Sweep(tmp_path / "out", ("digits-5",), ("slda",), (0,))
    with pytest.raises(TriphaseError, match=f"^Node .*{sentence}"):
        execute(schedule, tmp_path / "out" / "sweep.json", back_end(tmp_path))
    assert len(ray.messages) == 1 and not ray.is_connected
    ray.change = {}
    assert len(execute(schedule, tmp_path / "out" / "sweep.json", back_end(tmp_path)).results) == 1, (
        "nothing is lost"
    )


def test_a_node_without_triphase_and_a_cluster_without_room_are_named(ray: FakeRay, tmp_path: Path) -> None:
    ray.lose = lambda message: FakeRay.RayTaskError("Traceback\nModuleNotFoundError: No module named 'triphase'")
    schedule = Sweep(tmp_path / "out", ("digits-5",), ("slda",), (0,))
    with pytest.warns(TriphaseWarning, match=r"asks for \(CPU 1, GPU 2\): runs wait until one joins"):
        place = back_end(tmp_path, resources=Resources(gpus=2))
    with pytest.raises(TriphaseError, match="lacks a package .*'triphase'.*: install triphase on all nodes"):
        execute(schedule, tmp_path / "out" / "sweep.json", place)


def test_nothing_is_written_where_something_else_than_ray_answers(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: str, place: str) -> None:
        raise Unreachable("Something else answers there.")

    monkeypatch.setattr(ray_tasks, "_connect", refuse)
    with pytest.raises(Unreachable, match="Something else"):
        back_end(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "found"),
    [("", "10.0.0.1:6379"), ("auto", "10.0.0.1:6379"), ("10.0.0.2:6379", "10.0.0.2:6379")],
)
def test_the_cluster_of_this_computer_is_found_unless_another_one_is_named(
    given: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", given)
    monkeypatch.setattr(ray_tasks, "_address_here", lambda: "10.0.0.1:6379")
    monkeypatch.setattr(ray_tasks, "_answers", lambda place: True)
    assert ray_tasks._find("ray") == (found, found)
    assert ray_tasks._find("ray://10.0.0.3:10001") == ("ray://10.0.0.3:10001", "10.0.0.3:10001")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--on", "slurm"], "--on is local, ray or ray://HOST:PORT, got 'slurm'"),
        (["--gpus", "1"], "--gpus is for --on ray, and this is --on local"),
        (["--on", "ray", "--gpus", "1.5"], "--gpus above 1 must be whole, got 1.5"),
        (["--on", "ray", "--cpus", "inf"], "--cpus must be finite, got inf"),
        (["--on", "ray", "--workers", "2"], "--workers is for --on local, and this is --on ray"),
        (["--on", "ray://127.0.0.1:1"], "No Ray cluster answers at 127.0.0.1:1; check the address"),
    ],
    ids=["on", "gpus", "parts of two gpus", "infinite cpus", "workers", "address"],
)
def test_a_place_that_cannot_be_is_refused(words: list[str], part: str, triphase: Call, tmp_path: Path) -> None:
    answer = triphase("bench", "sweep", "digits-5", "--learners", "slda", "--orders", "0", *words)
    assert answer.status == 1 and answer.err.startswith("error: ") and part in answer.err
    assert not list(tmp_path.rglob("*")), "nothing may be written"
