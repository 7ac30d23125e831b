"""The command: help, version, and how it ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import triphase as package
from command import Call
from triphase.__main__ import WAIT
from triphase.cli import COMMANDS, PANELS

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
