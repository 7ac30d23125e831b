"""run(learner, stream): what it measures, what it writes, and how it goes on."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from triphase import TPC, FineTune, Memory, Recipe, SplitClassifier, run
from triphase import state as files
from triphase.bench.run import Report
from triphase.bench.run.runner import Event, recorded_threads
from triphase.checkpoint import Checkpoint
from triphase.context import Context
from triphase.data.images import Images
from triphase.data.streams import Experience, Stream, class_incremental, joint
from triphase.errors import BadData, CorruptState, Interrupted, InvalidValue, Mismatch
from triphase.learners import Joint, Learner, Step, Tick
from triphase.learners import training as loop
from triphase.models import linear_head
from triphase.testing import FIRST, REST, tiny_model, tiny_stream

RECIPE = Recipe(epochs=1)
LOSS = torch.tensor(1.0)


class Oracle:
    """Knows every class that it was shown, by the value of the one pixel. Just what the protocol asks for."""

    def __init__(self, n_classes: int) -> None:
        self.model = SplitClassifier(nn.Identity(), nn.Flatten(), linear_head(1, n_classes), image_size=1)
        self.context = Context()
        self.seen = torch.zeros(n_classes)

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = lambda step: None) -> None:
        self.seen[list(experience.classes)] = 1
        tick(Step("show", 1, 1, 1, 1, LOSS, recipe.lr))

    def logits(self, z: Tensor) -> Tensor:
        exact = nn.functional.one_hot(z.view(-1).long(), len(self.seen)).float()
        return exact.masked_fill(self.seen == 0, -torch.inf)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class Refusing(Oracle):
    """Must not be asked to learn."""

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = lambda step: None) -> None:
        raise AssertionError(f"experience {experience.index} was learned again")


class Killed(BaseException):
    """Ends a run where nothing expects it."""


def pixels(n_classes: int, n: int = 3) -> Images:
    """n images of one pixel for each class; the pixel is the label."""
    labels = torch.arange(n_classes).repeat(n)
    return Images.from_array(labels.to(torch.uint8).view(-1, 1, 1, 1), labels)


def counted(n_experiences: int, first: int, then: int, **options: Any) -> Stream:
    n_classes = first + then * (n_experiences - 1)
    names = [f"class {c}" for c in range(n_classes)]
    return class_incremental(pixels(n_classes), pixels(n_classes), names, first=first, then=then, **options)


def weights(out: Path) -> dict[str, Tensor]:
    state = files.load(out / "weights.safetensors")
    return {f"{block}.{name}": tensor for block, part in state.items() for name, tensor in part.items()}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.fixture
def stop_at_save(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None, type[BaseException]], None]:
    """stop_at_save(n, error) raises the error after the n-th save from now on; None lets it be."""
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


# What is measured


def test_a_learner_needs_no_more_than_the_protocol(tmp_path: Path) -> None:
    members = {name for name in vars(Oracle) if not name.startswith("_")} | {"model"}
    assert members == {"model", "learn", "logits", "state_dict", "load_state_dict"}
    report = run(Oracle(6), counted(3, 2, 2), first=RECIPE)
    assert report.amca == report.final_accuracy == report.ceiling == 1.0
    again = run(Oracle(6), counted(3, 2, 2), first=RECIPE, out=tmp_path / "run")
    assert again.accuracy == report.accuracy
    assert report.memory_bytes == 0 and report.settings["memory"] is None


def test_seen_classes_only_are_evaluated_as_they_arrive() -> None:
    report = run(Oracle(6), counted(3, 2, 2), first=RECIPE)
    assert report.evaluated_after == [1, 2, 3] and report.n_seen == [2, 4, 6]
    assert report.matrix.isnan().tolist() == [[label >= seen for label in range(6)] for seen in (2, 4, 6)]
    assert report.accuracy[0] == [1.0, 1.0, None, None, None, None]
    assert report.curve == [1.0, 1.0, 1.0]
    assert report.confusion == (3 * torch.eye(6, dtype=torch.long)).tolist()


def test_a_fixed_test_set_counts_unseen_classes_as_wrong() -> None:
    report = run(Oracle(6), counted(3, 2, 2, evaluation="all"), first=RECIPE)
    assert not report.matrix.isnan().any()
    assert report.accuracy[0] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert report.curve == pytest.approx([2 / 6, 4 / 6, 1.0])
    assert report.amca == pytest.approx(report.ceiling) == pytest.approx(2 / 3)


def test_rows_of_the_head_beyond_the_classes_do_not_lower_the_ceiling() -> None:
    stream = replace(tiny_stream(), evaluation="all")
    reports = [run(FineTune(tiny_model(n)), stream, first=RECIPE) for n in (4, 10)]
    assert reports[0].ceiling == reports[1].ceiling > 0.5


def test_an_evaluation_without_a_single_image_is_refused_beforehand() -> None:
    stream = tiny_stream()
    late = stream.test.select((stream.test.labels == 2).nonzero().view(-1))
    with pytest.raises(BadData, match="no test image of the classes that have been seen after experience 1"):
        run(Refusing(3), replace(stream, test=late), first=RECIPE)


def test_perfect_learning_of_core50_41_scores_60_percent() -> None:
    """SPEC 1.9: 41 experiences, 10 classes and then 1 each, of 50 that are all tested every time."""
    report = run(Oracle(50), counted(41, 10, 1, evaluation="all"), first=RECIPE)
    assert len(report.accuracy) == 41
    assert report.ceiling == pytest.approx(0.6) and report.amca == pytest.approx(0.6)
    assert report.final_accuracy == 1.0


def test_evaluation_happens_at_the_given_points_only() -> None:
    report = run(Oracle(10), counted(5, 2, 2, evaluate_after=(1, 3, 5)), first=RECIPE)
    assert report.evaluated_after == [1, 3, 5]
    assert report.n_seen == [2, 6, 10]
    assert len(report.accuracy) == 3


def test_accuracy_is_that_of_what_logits_say() -> None:
    class Confused(Oracle):
        def logits(self, z: Tensor) -> Tensor:
            return super().logits(torch.where(z == 1, 0, z))  # takes class 1 for class 0

    report = run(Confused(4), counted(2, 2, 2), first=RECIPE)
    assert report.accuracy == [[1.0, 0.0, None, None], [1.0, 0.0, 1.0, 1.0]]
    assert report.curve == [0.5, 0.75] and report.amca == 0.625
    assert report.confusion[1] == [3, 0, 0, 0]


def test_time_is_that_of_learning_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Evaluation, saving and drawing do not count (the paper times training)."""
    now = [0.0]

    class Slow(Oracle):
        def learn(self, experience: Experience, recipe: Recipe, tick: Tick = lambda step: None) -> None:
            now[0] += 2
            self.seen[list(experience.classes)] = 1
            tick(Step("one", 1, 1, 1, 1, LOSS, 0.1))
            now[0] += 3
            tick(Step("two", 1, 1, 1, 1, LOSS, 0.1))
            now[0] += 1

        def logits(self, z: Tensor) -> Tensor:
            now[0] += 1000
            return super().logits(z)

        def state_dict(self) -> dict[str, Any]:
            now[0] += 100
            return super().state_dict()

    def watch(event: Event) -> None:
        now[0] += 10

    monkeypatch.setattr(
        import_module("triphase.bench.run.runner"), "time", SimpleNamespace(perf_counter=lambda: now[0])
    )
    report = run(Slow(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run", watch=watch, save_every=0)
    assert report.phase_seconds == {"one": 4.0, "two": 8.0}
    assert report.train_seconds == 12.0


def test_time_goes_on_counting_after_a_restart(
    stop_at_save: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = [0.0]

    class Slow(Oracle):
        def learn(self, experience: Experience, recipe: Recipe, tick: Tick = lambda step: None) -> None:
            now[0] += 5
            super().learn(experience, recipe, tick)

    monkeypatch.setattr(
        import_module("triphase.bench.run.runner"), "time", SimpleNamespace(perf_counter=lambda: now[0])
    )
    stop_at_save(2)
    with pytest.raises(Killed):
        run(Slow(6), counted(3, 2, 2), first=RECIPE, out=tmp_path / "run", save_every=0)
    now[0] += 10_000
    stop_at_save(None)
    report = run(Slow(6), counted(3, 2, 2), first=RECIPE, out=tmp_path / "run", save_every=0)
    assert report.train_seconds == 15.0


def test_joint_training_has_one_evaluation() -> None:
    report = run(Joint(tiny_model()), joint(tiny_stream()), first=FIRST)
    assert report.evaluated_after == [1] and len(report.curve) == 1
    assert report.amca == report.final_accuracy


# What is told and written


def test_a_report_survives_json() -> None:
    report = run(TPC(tiny_model(), Memory(12, seed=0)), tiny_stream(), first=FIRST, rest=REST)
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    again = Report.from_json(document)
    assert again == report
    assert torch.equal(again.matrix.nan_to_num(-1), report.matrix.nan_to_num(-1))
    assert document["amca"] == again.amca and document["final_accuracy"] == again.final_accuracy
    assert document["train_seconds"] == pytest.approx(sum(document["phase_seconds"].values()))


def test_a_report_says_what_was_run() -> None:
    memory = Memory(12, seed=3)
    report = run(TPC(tiny_model(), memory, t=0.25, seed=3), tiny_stream(), first=FIRST, rest=REST)
    settings = report.settings
    assert (settings["learner"], settings["t"], settings["seed"]) == ("tpc", 0.25, 3)
    assert settings["first"] == FIRST.to_json() and settings["rest"] == REST.to_json()
    assert settings["memory"]["capacity"] == 12 and report.memory_bytes == memory.nbytes > 0
    assert settings["stream"] == tiny_stream().fingerprint
    assert settings["threads"] == torch.get_num_threads()
    assert report.versions["torch"] == torch.__version__
    assert report.names == list(tiny_stream().names)
    assert set(report.phase_seconds) == {"I", "II", "III"}


def test_a_run_in_memory_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(Oracle(4), counted(2, 2, 2), first=RECIPE)
    assert list(tmp_path.iterdir()) == []


def test_in_memory_and_on_disk_give_the_same(tmp_path: Path) -> None:
    one, two = (TPC(tiny_model(), Memory(12, seed=0)) for _ in range(2))
    report = run(one, tiny_stream(), first=FIRST, rest=REST)
    saved = run(two, tiny_stream(), first=FIRST, rest=REST, out=str(tmp_path / "run"))
    assert report.accuracy == saved.accuracy and report.confusion == saved.confusion
    assert_equal(dict(two.model.state_dict()), dict(one.model.state_dict()))
    assert_equal(weights(tmp_path / "run"), dict(one.model.state_dict()))


def test_a_finished_run_holds_weights_report_settings_and_log(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"
    report = run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=out, settings={"note": "mine"})
    names = {"LOCK", "events.jsonl", "report.json", "settings.json", "weights.safetensors"}
    assert {file.name for file in out.iterdir()} == names
    assert Report.from_json(files.read_json(out / "report.json")) == report
    assert files.read_json(out / "settings.json") == report.settings
    assert report.settings["note"] == "mine"


def test_the_watcher_sees_each_experience_begin_step_and_end(tmp_path: Path) -> None:
    events: list[Event] = []
    stream = tiny_stream()
    run(FineTune(tiny_model()), stream, first=FIRST, rest=REST, out=tmp_path / "run", watch=events.append)
    kinds = [event["event"] for event in events if event["event"] != "step"]
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


def test_the_log_tells_how_far_the_rows_of_tpc_overshoot(tmp_path: Path) -> None:
    run(TPC(tiny_model(), Memory(12)), tiny_stream(), first=FIRST, rest=REST, out=tmp_path / "run")
    lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    peaks = [event["peak_sigma_over_s"] for event in map(json.loads, lines) if event["event"] == "epoch"]
    assert len(peaks) > 3 and all(0.1 < peak < 100 for peak in peaks)


def test_a_loss_that_is_no_number_does_not_spoil_the_log(tmp_path: Path) -> None:
    class Diverging(Oracle):
        def learn(self, experience: Experience, recipe: Recipe, tick: Tick = lambda step: None) -> None:
            super().learn(experience, recipe)
            tick(Step("show", 1, 1, 1, 1, torch.tensor(float("nan")), recipe.lr))

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    run(Diverging(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run")
    lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line, parse_constant=refuse) for line in lines]
    assert events[0]["loss"] is None


# Going on


def test_a_finished_run_is_not_learned_again(tmp_path: Path) -> None:
    out = tmp_path / "run"
    report = run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=out)
    before = {file.name: file.stat().st_mtime_ns for file in out.iterdir()}
    assert run(Refusing(4), counted(2, 2, 2), first=RECIPE, out=out) == report
    assert {file.name: file.stat().st_mtime_ns for file in out.iterdir()} == before


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
    report = run(OnlyTheLast(6), stream, first=RECIPE, out=tmp_path / "run", save_every=0, watch=events.append)
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
    expected, saves = weights(tmp_path / "reference"), 0
    while True:
        out, saves = tmp_path / f"stopped after {saves + 1}", saves + 1
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


def test_a_run_goes_on_under_the_number_of_threads_that_it_was_begun_with_and_no_other(
    stop_at_save: Callable[..., None], tmp_path: Path
) -> None:
    before = torch.get_num_threads()
    assert recorded_threads(tmp_path / "run") is None
    stop_at_save(1)
    with pytest.raises(Killed):
        run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run", save_every=0)
    stop_at_save(None)
    try:
        torch.set_num_threads(before + 1)
        sentence = rf"begun with {before} CPU thread.*has {before + 1}.*torch.set_num_threads\({before}\)"
        with pytest.raises(Mismatch, match=sentence):
            run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run")
        assert torch.get_num_threads() == before + 1, "run() must leave the process alone"
        assert recorded_threads(tmp_path / "run") == before
        torch.set_num_threads(before)
        report = run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run")
        assert report.settings["threads"] == before and recorded_threads(tmp_path / "run") is None
        torch.set_num_threads(before + 1)  # a finished run is only read
        assert run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run").accuracy == report.accuracy
    finally:
        torch.set_num_threads(before)


def test_ctrl_c_says_how_to_continue(stop_at_save: Callable[..., None], tmp_path: Path) -> None:
    stop_at_save(2, KeyboardInterrupt)
    with pytest.raises(Interrupted, match="Run again to continue"):
        run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run", save_every=0)
    stop_at_save(None)
    assert run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run").amca == 1.0


def test_ctrl_c_stays_what_it_is_where_nothing_is_saved() -> None:
    def watch(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Oracle(4), counted(2, 2, 2), first=RECIPE, watch=watch)


def begun(out: Path, stop_at_save: Callable[..., None]) -> None:
    """A run of TPC that was stopped in its first experience."""
    stop_at_save(3)
    with pytest.raises(Killed):
        run(TPC(tiny_model(), Memory(12)), tiny_stream(), first=FIRST, rest=REST, out=out, save_every=0)
    stop_at_save(None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learner": lambda: FineTune(tiny_model(), Memory(12))}, r"learner 'tpc' \(now 'replay'\)"),
        ({"learner": lambda: TPC(tiny_model(), Memory(12), seed=1)}, r"seed 0 \(now 1\)"),
        ({"learner": lambda: TPC(tiny_model(), Memory(12), t=0.25)}, r"t 0.5 \(now 0.25\)"),
        ({"learner": lambda: TPC(tiny_model(), Memory(13))}, r"memory.capacity 12 \(now 13\)"),
        ({"learner": lambda: TPC(tiny_model(), None)}, "memory .* \\(now None\\)"),
        ({"rest": replace(REST, epochs=4)}, r"rest.epochs 3 \(now 4\)"),
        ({"first": replace(FIRST, lr=0.5)}, r"first.lr 0.02 \(now 0.5\)"),
        ({"stream": joint(tiny_stream())}, "another stream"),
        ({"settings": {"order": 1}}, r"order None \(now 1\)"),
    ],
)
def test_a_run_is_not_continued_as_another_one(
    change: dict[str, Any], message: str, stop_at_save: Callable[..., None], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    begun(out, stop_at_save)
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    options = {
        "learner": lambda: TPC(tiny_model(), Memory(12)),
        "stream": tiny_stream(),
        "first": FIRST,
        "rest": REST,
    }
    options |= change
    with pytest.raises(Mismatch, match=message) as caught:
        run(options.pop("learner")(), options.pop("stream"), out=out, **options)  # type: ignore[arg-type, operator]
    assert "give another --out, or delete" in str(caught.value)
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_a_run_that_was_refused_at_once_may_be_begun_as_another(tmp_path: Path) -> None:
    out, stream = tmp_path / "run", tiny_stream()
    with pytest.raises(InvalidValue, match="at least 3"):
        run(TPC(tiny_model(), Memory(12)), stream, first=replace(FIRST, epochs=2), rest=REST, out=out)
    report = run(TPC(tiny_model(), Memory(12)), stream, first=FIRST, rest=REST, out=out)
    assert report.settings["first"]["epochs"] == 3
    assert files.read_json(out / "settings.json") == report.settings


@pytest.mark.parametrize("part", ["index.json", "head", "loop", "memory"])
def test_a_truncated_checkpoint_is_named(part: str, stop_at_save: Callable[..., None], tmp_path: Path) -> None:
    out = tmp_path / "run"
    begun(out, stop_at_save)
    (file,) = (path for path in (out / "state").iterdir() if path.name.startswith(part))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(CorruptState, match=f"{file.name} is damaged"):
        run(TPC(tiny_model(), Memory(12)), tiny_stream(), first=FIRST, rest=REST, out=out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("lost", ["settings.json", "state/csf*"])
def test_a_lost_file_of_a_run_is_named(lost: str, stop_at_save: Callable[..., None], tmp_path: Path) -> None:
    out = tmp_path / "run"
    begun(out, stop_at_save)
    (file,) = out.glob(lost)
    file.unlink()
    with pytest.raises(CorruptState, match=f"{file.name} is missing"):
        run(TPC(tiny_model(), Memory(12)), tiny_stream(), first=FIRST, rest=REST, out=out)
