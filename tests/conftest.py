"""Shared set-up: no test depends on timing, and one thread per worker keeps two workers on two cores."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")  # also for every process that a test starts

import pytest
import torch
from hypothesis import settings

from command import Answer, Call
from folded_weights import REAL_FILE, folded_file
from lessons import World, done, make_world, paint

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browser import Visitor
    from triphase.bench.report.group import GroupedRuns

StopAtSave = Callable[..., None]

settings.register_profile("triphase", deadline=None, derandomize=True)
settings.load_profile("triphase")
torch.set_num_threads(1)


@pytest.fixture
def triphase(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Calls the command in this process, in a folder of the test's own and in a wide terminal."""
    from triphase.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["triphase", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return Answer(int(end.value.code or 0), out, err)

    return call


@pytest.fixture
def stop_at_save(monkeypatch: pytest.MonkeyPatch) -> StopAtSave:
    """stop_at_save(n, error) raises the error after the n-th save from now on; None lets it be."""
    from oracle import Killed
    from triphase.checkpoint import Checkpoint

    real, left = Checkpoint.save, [0]
    what: list[type[BaseException]] = [Killed]

    def save(self: Checkpoint, state: dict[str, Any], *, wait: bool = True) -> bool:
        done = real(self, state, wait=wait)
        left[0] -= 1
        if left[0] == 0:
            raise what[0]
        return done

    monkeypatch.setattr(Checkpoint, "save", save)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # only a power cut needs it

    def stop(n: int | None, error: type[BaseException] = Killed) -> None:
        left[0], what[0] = n or 0, error

    return stop


@pytest.fixture
def three_orders(tmp_path: Path) -> GroupedRuns:
    """TPC and AR1 on three class orders, and joint training on one."""
    from fake_reports import make, write
    from triphase.bench.report.group import group_runs

    runs = [make("tpc", a, order=o, seconds=200) for o, a in ((1, 0.50), (2, 0.52), (3, 0.54))]
    runs += [make("ar1", a, order=o, seconds=100) for o, a in ((1, 0.45), (2, 0.47), (3, 0.49))]
    return group_runs([write(tmp_path / "runs", *runs, make("joint", 0.8))])


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Photos and a small model that was taught the first of them."""
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def world(original: World, tmp_path: Path) -> World:
    """A copy that a test may change."""
    shutil.copytree(original.one.parent, tmp_path / "world")
    return World(*(tmp_path / "world" / name for name in ("one", "two", "test", "base")))


@pytest.fixture(scope="session")
def lite0_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a pre-trained network at 64 pixels; photos that it was not taught lie beside it, in test/.

    All workers share it: a test that changes it copies it first.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "lite0"
    folder.mkdir(exist_ok=True)
    with (folder / "LOCK").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "model").exists():
            for colour in ("red", "green", "blue"):
                paint(folder / "one" / colour, colour, range(8))
                paint(folder / "test" / colour, colour, range(100, 106))
            done("teach", folder / "made", folder / "one", "--image-size", "64", "--memory", "120")
            (folder / "made").rename(folder / "model")
    return folder / "model"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of the page."""
    from browser import chromium

    with chromium() as running:
        yield running


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    """Somebody who opens the page in a window of their own; nothing may go wrong in its console."""
    from browser import Visitor

    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        visitor = Visitor(context.new_page())
        yield visitor
        assert visitor.errors == []


@pytest.fixture(scope="module")
def no_fsync() -> Iterator[None]:
    """Do not wait for the disk: only a power failure would show the difference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(params=["random", "real"])
def folded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file of weights with folded BatchNorm: a random one, then the real one if it is there."""
    if request.param == "random":
        return folded_file(tmp_path / "folded.safetensors")
    if not REAL_FILE.is_file():
        pytest.skip(f"needs {REAL_FILE.name}; set TRIPHASE_SHARED to the directory that holds data/")
    return REAL_FILE
