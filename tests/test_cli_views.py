"""Views of runs and sweeps in a terminal."""

from __future__ import annotations

from sweep_results import OUT
from triphase.bench.sweep.grid import Sweep
from triphase.bench.sweep.jobs import Result
from triphase.bench.sweep.scheduler import Progress
from triphase.cli.run_view import RunView
from triphase.cli.sweep_view import SweepView


def test_a_sweep_view_shows_running_jobs_and_prints_each_line_once() -> None:
    schedule = Sweep(OUT, ("digits-5",), ("tpc",), (0, 1))
    one, two, three = schedule.jobs({})
    progress = Progress(
        schedule, {one: Result(0.75, 0.5, 1.0)}, {two: "it broke"}, {three: 0.5}, seconds_left=5400.0
    )
    progress.warnings.append("it is late")
    view = SweepView()
    with view.console.capture() as told:
        view.on_progress(progress)
        view.on_progress(progress)
    assert told.get().splitlines() == [f"{one.title}  AMCA 75.0 %", f"{two.title}  failed: it broke", "it is late"]
    lines = "\n".join("".join(s.text for s in line) for line in view.console.render_lines(view.draw()))
    assert "1/4" in lines and "75.0 %" in lines and "50 %" in lines and three.title in lines
    assert "1 of 4 runs, about 1 h 30 min left, 1 failed" in lines


def test_the_terminal_shows_the_phase_and_each_class() -> None:
    view = RunView("tpc", quiet=True)
    view.on_event({"event": "begin", "experience": 2, "of": 5, "images": 9, "classes": ["cat", "dog"]})
    view.on_event({"event": "encode", "done": 3, "total": 9})
    assert "latents" in (drawn := str(view.console.render_lines(view.draw()))) and "3 of 9 images" in drawn
    view.on_event({"event": "evaluated", "experience": 1, "accuracy": 0.5, "classes": {"cat": 0.5, "dog": None}})
    step = {"experience": 2, "phase": "II", "epoch": 1, "epochs": 2, "step": 1, "steps": 2, "loss": 0.25, "lr": 0.1}
    step |= {"images_per_second": 1234.5, "shares": {"data": 0.25, "csf": 0.75}}
    view.on_event({"event": "step", **step})
    lines = "\n".join("".join(segment.text for segment in line) for line in view.console.render_lines(view.draw()))
    assert "experience 2/5, 9 images: cat, dog" in lines
    assert "Phase II" in lines and "epoch 1/2" in lines and "loss 0.250" in lines
    assert "50.0 %" in lines
    view.on_event({"event": "epoch", **step, "loss": None})
    assert "not finite" in str(view.console.render_lines(view.draw()))
