"""The demo's lessons: learned, unknown, refused, undone."""

from pathlib import Path

import pytest

from triphase.app.demo import run_demo


@pytest.mark.slow
def test_the_lessons_show_what_they_promise(tmp_path: Path) -> None:
    steps = list(run_demo(tmp_path / "lessons"))
    results = [step.result for step in steps]
    assert results[0].startswith("learned three shapes, 15 drawings of each in ")
    assert results[1].startswith("a new star: star, ")
    assert results[2] == "a cross, which it never saw: unknown"
    assert results[4].startswith("the cross again: cross, ")
    assert results[5].startswith("Not published: ")
    assert results[6] == "version 1 is back: it knows no cross"
    assert [step.command.split()[1] for step in steps] == [
        "teach", "predict", "predict", "teach", "predict", "teach", "undo"
    ]  # fmt: skip
