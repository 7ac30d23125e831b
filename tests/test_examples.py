"""The examples run and do what they show."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import five_lines
import my_learner
import teach


def test_a_learner_of_ones_own_passes_the_check_suite_and_learns(capsys: pytest.CaptureFixture[str]) -> None:
    assert my_learner.main(epochs=3) > 0.6
    assert "final accuracy" in capsys.readouterr().out


def test_the_readme_s_python_interface_learns_digits(capsys: pytest.CaptureFixture[str]) -> None:
    assert five_lines.main(epochs=6) > 0.6
    assert "AMCA" in capsys.readouterr().out


def test_the_readme_s_own_lines_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    code = readme.split("```python\n")[1].split("```")[0].replace("epochs=20", "epochs=3")
    monkeypatch.chdir(tmp_path)
    exec(code, {})  # a few lines of our own, with fewer epochs
    amca, final = (float(word) for word in capsys.readouterr().out.split())
    assert 0.3 < final <= amca <= 1
    assert (tmp_path / "runs" / "digits" / "weights.safetensors").exists()


@pytest.mark.parametrize(
    "options",
    [{"backbone": "small_cnn", "image_size": 32}, pytest.param({}, marks=pytest.mark.slow)],
    ids=["small", "default"],
)
def test_the_teaching_example_learns_two_lessons(
    options: dict[str, str | int], capsys: pytest.CaptureFixture[str]
) -> None:
    teach.main(**options)
    out = capsys.readouterr().out
    assert "friday: version 2, 12 photos" in out
    assert "friday/green disc: green disc" in out and "monday/red disc: red disc" in out
