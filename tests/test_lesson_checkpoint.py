"""A lesson that is killed at any instant goes on and ends the same."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from PIL import Image

from lessons import SMALL, World, assert_same_state, done, paint, triphase, versions
from triphase import ContinualClassifier
from triphase.app import lesson_checkpoint
from triphase.app.lesson_checkpoint import LessonCheckpoint
from triphase.app.plan import LessonSettings
from triphase.app.store.versions import Store
from triphase.app.teach import teach
from triphase.checkpoint import Checkpoint
from triphase.cli import main
from triphase.errors import InvalidValue


class Nursery:
    """Runs commands in processes forked from one that has imported torch already, and kills them as told."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe, env=environment)

    def run(self, *arguments: object, deed: str = "", name: str = "", n: int = 1) -> str:
        """What the command told, once it has ended well or was killed at the n-th deed to a file of that name."""
        assert self.process.stdin is not None and self.process.stdout is not None
        job = {"argv": [str(argument) for argument in arguments], "death": [deed, name, n]}
        self.process.stdin.write((json.dumps(job) + "\n").encode())
        self.process.stdin.flush()
        status, told = json.loads(self.process.stdout.readline())
        assert status == (-signal.SIGKILL if deed else 0), told
        return str(told)

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    one = Nursery()
    yield one
    one.close()


@pytest.fixture(scope="module")
def uninterrupted(original: World, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("uninterrupted") / "model"
    shutil.copytree(original.base, model)
    nursery.run("teach", model, original.two, "--force")
    return model


@pytest.mark.parametrize(
    ("options", "deaths"),
    [
        ([], [("replaced", "index.json", 2), ("half", "csf", 3), ("replaced", "index.json", 5)]),
        ([], [("open", "lesson.json", 1), ("replace", "index.json", 1), ("half", "memory", 2)]),
        ([], [("replace", "000002.json", 1), ("half", "CURRENT", 1), ("replaced", "CURRENT", 1)]),
        (["--quick"], [("replaced", "CURRENT", 1), ("replaced", "index.json", 3), ("replaced", "CURRENT", 1)]),
    ],
    ids=["in training", "at the start", "in publishing", "between the two speeds"],
)
def test_killed_at_any_instant_the_same_command_ends_the_same(
    options: Sequence[str],
    deaths: Sequence[tuple[str, str, int]],
    world: World,
    nursery: Nursery,
    uninterrupted: Path,
) -> None:
    command = ("teach", world.base, world.two, "--force", *options)
    for deed, name, n in deaths:
        nursery.run(*command, deed=deed, name=name, n=n)
        done("status", world.base)
    nursery.run(*command)
    assert_same_state(world.base, uninterrupted)
    assert not (world.base / "work").exists()
    assert [event["event"] for event in Store(world.base).history()].count("taught") == 2


def test_the_first_lesson_may_be_quick_and_goes_on_after_a_crash_with_the_options_it_had(
    world: World, nursery: Nursery, tmp_path: Path
) -> None:
    model, folder = tmp_path / "new", world.one
    told = nursery.run("teach", model, folder, *SMALL, "--quick", deed="replaced", name="index.json", n=2)
    assert versions(model) == [1], told
    assert done("evaluate", model, folder, "--json").document()["accuracy"] >= 0.9
    answer = triphase("undo", model)
    assert answer.status == 1 and "is the first: nothing to undo" in answer.err
    other = triphase("teach", model, world.two)
    assert other.status == 1 and "not all its photos are in" in other.err and "start again: delete" in other.err
    refused = triphase("teach", model, folder, "--memory", "60")
    assert refused.status == 1 and "made with memory 120" in refused.err
    done("teach", model, folder)
    assert [event["event"] for event in Store(model).history()] == ["taught_quick", "taught"]
    assert_same_state(model, world.base)


def test_a_quick_lesson_that_grew_takes_the_place_of_its_first_half(world: World, nursery: Nursery) -> None:
    command = ("teach", world.base, world.two, "--quick", "--force", "--keep", "2")
    nursery.run(*command, deed="replaced", name="index.json", n=2)
    assert versions(world.base) == [1, 2]
    shutil.copy(next((world.test / "yellow").iterdir()), world.two / "yellow" / "one-more.png")
    done(*command)
    assert "Back at version 1" in done("undo", world.base).out, "never at half a lesson"


def test_half_a_lesson_answers_and_must_be_finished_or_taken_back(
    world: World, nursery: Nursery, uninterrupted: Path
) -> None:
    command = ("teach", world.base, world.two, "--quick", "--force")
    nursery.run(*command, deed="replaced", name="index.json", n=2)
    assert versions(world.base) == [1, 2]
    assert done("evaluate", world.base, world.test, "--json").document()["per_class"]["yellow"] >= 0.8
    for words in (("forget", "red"), ("rename", "red", "rot"), ("unteach", world.two)):
        answer = triphase(words[0], world.base, *words[1:])
        assert answer.status == 1 and "finish it where it began" in answer.err and "triphase undo" in answer.err
    with pytest.raises(InvalidValue, match="A quick lesson of this model is not finished"):
        ContinualClassifier.load(world.base).save(world.base, keep=1)
    other = triphase("teach", world.base, world.one)
    assert other.status == 1 and "not all its photos are in" in other.err and "triphase undo" in other.err
    done(*command)
    assert_same_state(world.base, uninterrupted)
    assert done("history", world.base, "--json").document()["events"][-1]["event"] == "taught"
    assert versions(world.base) == [1, 3], "the half is in nobody's way"
    assert "Back at version 1" in done("undo", world.base).out


def test_photos_that_changed_meanwhile_start_the_lesson_again(world: World, nursery: Nursery) -> None:
    fresh = world.base.with_name("fresh")
    shutil.copytree(world.base, fresh)
    nursery.run("teach", world.base, world.two, "--force", deed="replaced", name="index.json", n=3)
    paint(world.two / "yellow", "yellow", range(10, 12))
    told = nursery.run("teach", world.base, world.two, "--force")
    assert "The photos or the model changed since a lesson was interrupted: it was started again." in told
    nursery.run("teach", fresh, world.two, "--force")
    assert_same_state(world.base, fresh)


def test_a_lesson_that_was_killed_says_that_it_goes_on(world: World, nursery: Nursery) -> None:
    nursery.run("teach", world.base, world.two, deed="replaced", name="index.json", n=3)
    assert "or on the page of `triphase serve`" in done("status", world.base).out
    assert "Continuing the lesson" in nursery.run("teach", world.base, world.two, "--force")


def test_a_lesson_under_another_number_of_threads_starts_again_unless_the_command_sets_the_number(
    world: World, nursery: Nursery, uninterrupted: Path
) -> None:
    nursery.run("teach", world.base, world.two, "--force", deed="replaced", name="index.json", n=3)
    other = world.base.with_name("other")
    shutil.copytree(world.base, other)
    assert LessonCheckpoint.recorded_threads(other) == 1
    try:
        torch.set_num_threads(2)
        notes = teach(other, world.two, settings=LessonSettings(force=True)).notes
        assert any("ran with 1 threads" in note and "it was started again" in note for note in notes)
        assert torch.get_num_threads() == 2, "a lesson leaves the process alone"
        assert "An interrupted lesson was continued." in done("teach", world.base, world.two, "--force").out
        assert torch.get_num_threads() == 1, "the command line goes on as the lesson was begun"
    finally:
        torch.set_num_threads(1)
    assert_same_state(world.base, uninterrupted)


# What runs in the other process


def _child(job: dict[str, Any], out: int) -> int:
    from test_kill import Death, _Mortal

    for descriptor in (1, 2):
        os.dup2(out, descriptor)
    lesson_checkpoint.SAVE_EVERY, save = 0.0, Checkpoint.save
    patch.object(Checkpoint, "save", lambda self, state, wait: save(self, state)).start()  # none is left out
    _Mortal(Death(*job["death"]))
    sys.argv = ["triphase", *job["argv"]]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _nursery() -> None:
    """Import what takes long, then fork a process for each job; answer its end and what it told."""
    import scipy.optimize  # noqa: F401
    import torch._dynamo  # noqa: F401

    import triphase.cli.teach  # noqa: F401

    Image.init()
    torch.set_num_threads(1)
    while line := sys.stdin.readline():
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = _child(json.loads(line), writer)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        os.close(writer)
        with open(reader, encoding="utf-8") as pipe:
            told = pipe.read()
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), told]), flush=True)


if __name__ == "__main__":
    _nursery()
