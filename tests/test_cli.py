"""The command: help, version, and how it ends."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

import triphase as package
from command import Call
from lessons import World
from triphase.__main__ import WAIT
from triphase.cli import COMMANDS, PANELS, _docstring

COMMAND = str(Path(sys.executable).with_name("triphase"))


def test_the_module_is_the_command() -> None:
    texts = [
        subprocess.run([*line, "--version"], capture_output=True, text=True, check=True).stdout
        for line in ([COMMAND], [sys.executable, "-m", "triphase"])
    ]
    assert texts[0] == texts[1] != ""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["PASSIVE", "1000"]),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, ["ACTIVE", "-"]),
        ({"GOMP_SPINCOUNT": "5"}, ["-", "5"]),
    ],
)
def test_threads_that_wait_sleep_unless_the_environment_says_otherwise(
    given: dict[str, str], expected: list[str]
) -> None:
    code = (
        "import os, sys\nfrom triphase.__main__ import WAIT, main\nsys.argv = ['triphase', '--version']\n"
        "os._exit = lambda status: print(*(os.environ.get(name, '-') for name in WAIT))\nmain()"
    )
    environment = {name: value for name, value in os.environ.items() if name not in WAIT} | given
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1].split() == expected


def test_the_package_imports_nothing_until_it_is_asked() -> None:
    code = (
        "import sys, triphase; print('torch' in sys.modules)\n"
        "print(triphase.learners.TPC is triphase.TPC, triphase.learners.TPC.__name__, 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True", "TPC", "True"]
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'tpc2'"):
        _ = package.tpc2


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"], ["tech"]])
def test_help_and_usage_errors_do_not_wait_for_torch(arguments: list[str]) -> None:
    _without_torch(arguments)


@pytest.mark.parametrize("command", ["status", "classes", "history", "undo"])
def test_looking_at_a_model_does_not_wait_for_torch(world: World, tmp_path: Path, command: str) -> None:
    model = shutil.copytree(world.base, tmp_path / "model")
    _without_torch([command, str(model)])


def _without_torch(arguments: list[str]) -> None:
    """Run a command where torch cannot be imported."""
    code = "import sys; sys.modules['torch'] = None; from triphase.cli import main; main()"
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    said = run.stdout + run.stderr
    assert said.strip() and "Traceback" not in said and "import of torch" not in said


def test_help_lists_each_command_with_the_first_line_of_its_docstring(triphase: Call) -> None:
    for name, module in COMMANDS.items():
        command = getattr(import_module(f"triphase.cli.{module}"), name)
        text = command.info.help if isinstance(command, typer.Typer) else command.__doc__
        assert text and _docstring(name).splitlines()[0] == text.splitlines()[0]


def test_the_command_waits_for_whoever_is_still_writing(tmp_path: Path) -> None:
    code = (
        "import sys, threading, time, triphase.cli\n"
        "def write(): time.sleep(0.5); open(sys.argv[1], 'w').write('whole')\n"
        "def command(): threading.Thread(target=write).start(); sys.exit(3)\n"
        "triphase.cli.main = command\n"
        "from triphase.__main__ import main; main()"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "file"])
    assert run.returncode == 3 and (tmp_path / "file").read_text() == "whole"


@pytest.mark.parametrize(("ending", "status"), [(">&-", 0), ("> /dev/full", 1)])
def test_nobody_needs_to_read_what_is_printed(ending: str, status: int) -> None:
    run = subprocess.run(f"{COMMAND} --version {ending}", shell=True, capture_output=True, text=True)
    assert run.returncode == status and "Traceback" not in run.stderr


def test_help_lists_the_commands(triphase: Call) -> None:
    answer = triphase("--help")
    assert answer.status == 0 and answer.err == ""
    for word in ("demo", "bench", "without forgetting the old ones"):
        assert word in answer.out


@pytest.mark.parametrize(
    "command", [["demo"], ["bench"], ["bench", "list"], ["bench", "run"], ["bench", "sweep"], ["bench", "ablate"]]
)
def test_every_command_explains_itself(command: list[str], triphase: Call) -> None:
    answer = triphase(*command, "--help")
    assert answer.status == 0 and answer.err == ""
    assert re.search(rf"Usage: .*{' '.join(command)} ", answer.out) and "--help" in answer.out


def test_help_shows_no_type_beside_flags_and_one_panel_for_each_command(triphase: Call) -> None:
    assert sorted(COMMANDS) == sorted(name for names in PANELS.values() for name in names)
    for command in ([], ["teach"], ["bench"], ["bench", "run"]):
        assert "<bool>" not in triphase(*command, "--help").out


def test_no_command_shows_the_help(triphase: Call) -> None:
    answer = triphase()
    assert "Usage: " in answer.out and "demo" in answer.out and "bench" in answer.out
