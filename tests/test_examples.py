"""The examples run and do what they show."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import five_lines
import my_learner


def test_a_learner_of_ones_own_passes_the_check_suite_and_learns(capsys: pytest.CaptureFixture[str]) -> None:
    assert my_learner.main(epochs=3) > 0.6
    assert "final accuracy" in capsys.readouterr().out


def test_the_readme_s_python_interface_learns_digits(capsys: pytest.CaptureFixture[str]) -> None:
    assert five_lines.main(epochs=6) > 0.6
    assert "AMCA" in capsys.readouterr().out
