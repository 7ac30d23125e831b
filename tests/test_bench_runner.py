"""run(learner, stream): events, and runs that go on after an interruption."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from oracle import (
    RECIPE,
    Killed,
    Oracle,
    assert_equal,
    counted,
    weights,
)
from triphase import TPC, FineTune, Memory, Recipe, SplitClassifier, run
from triphase.bench.run.directory import why_diverged
from triphase.data.streams import Experience
from triphase.errors import Interrupted, InvalidValue
from triphase.events import Event
from triphase.learners import Joint, Learner, Step, Tick
from triphase.learners import training as loop
from triphase.models import linear_head
from triphase.testing import FIRST, REST, tiny_model, tiny_stream


def test_a_learner_needs_no_more_than_the_protocol(tmp_path: Path) -> None:
    members = {name for name in vars(Oracle) if not name.startswith("_")} | {"model"}
    assert members == {"model", "learn", "logits", "state_dict", "load_state_dict"}
    report = run(Oracle(6), counted(3, 2, 2), first=RECIPE)
    assert report.amca == report.final_accuracy == report.ceiling == 1.0
    again = run(Oracle(6), counted(3, 2, 2), first=RECIPE, out=tmp_path / "run")
    assert again.accuracy == report.accuracy
    assert report.memory_bytes == 0 and report.settings["memory"] is None


def test_in_memory_and_on_disk_give_the_same(tmp_path: Path) -> None:
    one, two = (TPC(tiny_model(), Memory(12, seed=0)) for _ in range(2))
    report = run(one, tiny_stream(), first=FIRST, rest=REST)
    saved = run(two, tiny_stream(), first=FIRST, rest=REST, out=str(tmp_path / "run"))
    assert report.accuracy == saved.accuracy and report.confusion == saved.confusion
    assert_equal(dict(two.model.state_dict()), dict(one.model.state_dict()))
    assert_equal(weights(tmp_path / "run"), dict(one.model.state_dict()))


def test_the_watcher_sees_each_experience_begin_step_and_end(tmp_path: Path) -> None:
    events: list[Event] = []
    stream = tiny_stream()
    run(FineTune(tiny_model()), stream, first=FIRST, rest=REST, out=tmp_path / "run", on_event=events.append)
    kinds = [event["event"] for event in events if event["event"] not in ("step", "encode")]
    assert kinds == ["begin", *["epoch"] * 3, "evaluated", "begin", *["epoch"] * 3, "evaluated", "done"]
    begin = [event for event in events if event["event"] == "begin"][1]
    assert begin["experience"] == 2 and begin["of"] == 2
    assert begin["images"] == len(stream.experiences[1].images)
    assert begin["classes"] == [stream.names[c] for c in stream.experiences[1].classes]
    epochs = [event for event in events if event["event"] == "epoch"]
    assert [event["epoch"] for event in epochs] == [1, 2, 3, 1, 2, 3]
    assert all(event["step"] == event["steps"] and event["phase"] == "train" for event in epochs)
    logged = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    shares = [event.pop("shares") for event in events if "shares" in event]
    speeds = [event.pop("images_per_second") for event in events if "images_per_second" in event]
    assert logged == [event for event in events if event["event"] in ("epoch", "evaluated", "done")]
    assert all(sum(share.values()) == pytest.approx(1) for share in shares) and min(speeds) > 0


def test_the_log_holds_the_diagnostics_of_the_learner(tmp_path: Path) -> None:
    run(TPC(tiny_model(), Memory(12)), tiny_stream(), first=FIRST, rest=REST, out=tmp_path / "run")
    lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    peaks = [event["peak_sigma_over_s"] for event in map(json.loads, lines) if event["event"] == "epoch"]
    assert len(peaks) > 3 and all(0.1 < peak < 100 for peak in peaks)


def test_a_loss_that_is_no_number_does_not_spoil_the_log(tmp_path: Path) -> None:
    class Diverging(Oracle):
        def learn(self, experience: Experience, recipe: Recipe, tick: Tick = lambda step: None) -> None:
            super().learn(experience, recipe)
            tick(Step("view", 1, 1, 1, 1, torch.tensor(float("nan")), recipe.lr))

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    run(Diverging(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run")
    lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line, parse_constant=refuse) for line in lines]
    assert events[0]["loss"] is None


def test_a_network_that_diverged_is_refused_in_a_sentence(tmp_path: Path) -> None:
    def diverge(out: Path | None) -> None:
        with pytest.raises(InvalidValue, match=r"diverged in experience 2 \(learning rate 1e\+30\).*lower --lr"):
            run(FineTune(tiny_model()), tiny_stream(), first=FIRST, rest=replace(REST, lr=1e30), out=out)

    diverge(None)
    diverge(tmp_path / "run")
    assert (
        not (tmp_path / "run" / "report.json").exists() and not (tmp_path / "run" / "weights.safetensors").exists()
    )
    assert "lower --lr" in (why_diverged(tmp_path / "run") or "")
    run(FineTune(tiny_model()), tiny_stream(), first=FIRST, rest=REST, out=tmp_path / "run")
    assert why_diverged(tmp_path / "run") is None, "the corrected command takes the place of the run that diverged"


def test_scores_that_are_no_numbers_are_no_result(tmp_path: Path) -> None:
    torch.manual_seed(0)
    no_running_statistics = (nn.Linear(108, 16), nn.LayerNorm(16), nn.Linear(16, 16))
    csf = nn.Sequential(nn.Flatten(), *no_running_statistics)
    model = SplitClassifier(nn.Identity(), csf, linear_head(16, 4))
    model.accelerate(precision="float16")
    too_fast = replace(FIRST, epochs=30, lr=5.0)
    with pytest.raises(InvalidValue, match=r"diverged in experience \d \(learning rate 5\): its scores are no"):
        run(FineTune(model), tiny_stream(), first=too_fast, out=tmp_path / "run")
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters()), "the weights do not show it"
    assert "lower --lr" in (why_diverged(tmp_path / "run") or "")


def test_a_missing_compiler_is_named_in_a_sentence() -> None:
    class InductorError(RuntimeError):
        __module__ = "torch._inductor.exc"

    class Compiled(Oracle):
        def learn(self, experience: Experience, recipe: Recipe, tick: Tick = lambda step: None) -> None:
            raise InductorError("InvalidCxxCompiler: No working C++ compiler\n\nSet TORCHDYNAMO_VERBOSE=1")

    sentence = r"^torch.compile failed \(InvalidCxxCompiler: No working C\+\+ compiler\): leave out --compile\.$"
    with pytest.raises(InvalidValue, match=sentence):
        run(Compiled(4), counted(2, 2, 2), first=RECIPE)


def test_what_is_done_is_not_learned_again(stop_at_save: Callable[..., None], tmp_path: Path) -> None:
    class OnlyTheLast(Oracle):
        def learn(self, experience: Experience, recipe: Recipe, tick: Tick = lambda step: None) -> None:
            assert experience.index == 3
            super().learn(experience, recipe, tick)

    stop_at_save(4)  # two steps, two ends
    with pytest.raises(Killed):
        run(Oracle(6), counted(3, 2, 2), first=RECIPE, out=tmp_path / "run", save_every=0)
    stop_at_save(None)
    events: list[Event] = []
    stream = counted(3, 2, 2)
    report = run(OnlyTheLast(6), stream, first=RECIPE, out=tmp_path / "run", save_every=0, on_event=events.append)
    assert report.curve == [1.0, 1.0, 1.0] and report.evaluated_after == [1, 2, 3]
    assert events[0] == {"event": "resumed", "experience": 3}


def tpc(**options: Any) -> Callable[[], Learner]:
    return lambda: TPC(tiny_model(), Memory(12, seed=0), **options)


SCRATCH = {"pretrained": False}
LEARNERS: dict[str, tuple[Callable[[], Learner], Recipe]] = {
    "tpc": (tpc(), FIRST),
    "tpc with latent replay": (lambda: TPC(tiny_model(), Memory(12, seed=0, store="latent")), FIRST),
    "tpc without replay": (lambda: TPC(tiny_model(), None), FIRST),
    "tpc from scratch": (tpc(**SCRATCH), replace(FIRST, augment="crop+flip", weight_decay=1e-3)),
    "tpc with a growing head": (lambda: TPC(tiny_model(0), Memory(12, seed=0)), FIRST),
    "tpc with live momentum": (tpc(reset_momentum="experience", distill=1.0), FIRST),
    "tpc with a falling rate": (tpc(), replace(FIRST, lr_schedule="patience")),
    "replay": (lambda: FineTune(tiny_model(), Memory(12, seed=0)), FIRST),
    "replay that trains everything": (
        lambda: FineTune(tiny_model(), Memory(12, seed=0)),
        replace(FIRST, trainable="all"),
    ),
    "joint with unlimited memory": (lambda: Joint(tiny_model(), Memory(None)), FIRST),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_stopped_after_any_save_it_ends_the_same(
    name: str, stop_at_save: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loop, "PATIENCE", 0)  # the rate falls after every epoch, if the recipe lets it
    make, first = LEARNERS[name]
    rest, stream = replace(first, n_mbr=8), tiny_stream()
    reference = run(make(), stream, first=first, rest=rest, out=tmp_path / "reference", save_every=0)
    stride = 1 if name == "tpc" else 3  # the others at a part of the saves, each at another one
    expected, saves = weights(tmp_path / "reference"), list(LEARNERS).index(name) % stride + 1 - stride
    while True:
        saves += stride
        out = tmp_path / f"stopped after {saves}"
        stop_at_save(saves)
        try:
            run(make(), stream, first=first, rest=rest, out=out, save_every=0)
            break
        except Killed:
            stop_at_save(None)
        report = run(make(), stream, first=first, rest=rest, out=out, save_every=0)
        assert report.accuracy == reference.accuracy
        assert (out / "events.jsonl").read_text() == (tmp_path / "reference" / "events.jsonl").read_text()
        assert_equal(weights(out), expected)
    assert saves > 10


def test_ctrl_c_says_how_to_continue(stop_at_save: Callable[..., None], tmp_path: Path) -> None:
    stop_at_save(2, KeyboardInterrupt)
    with pytest.raises(Interrupted, match="Run again to continue"):
        run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run", save_every=0)
    stop_at_save(None)
    assert run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run").amca == 1.0


def test_ctrl_c_stays_what_it_is_where_nothing_is_saved() -> None:
    def on_event(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Oracle(4), counted(2, 2, 2), first=RECIPE, on_event=on_event)
