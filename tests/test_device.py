"""Devices: which there are, and that no learner lets tensors of two of them meet."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from command import Call
from fake_device import FAKE, FakeDevice
from lessons import paint
from oracle import Killed, StopAtSave
from triphase import (
    AR1,
    NCM,
    SLDA,
    TPC,
    Anchored,
    BiC,
    Context,
    ContinualClassifier,
    DepthSLDA,
    DERpp,
    FineTune,
    Joint,
    Learner,
    Memory,
    RanPAC,
    SplitClassifier,
    device,
    run,
)
from triphase.app import lesson_checkpoint
from triphase.app.store.versions import Store
from triphase.app.teach import teach
from triphase.data.batches import Batches
from triphase.data.feature_cache import latents, unpack
from triphase.data.training_latents import TrainingLatents
from triphase.errors import InvalidValue, TriphaseWarning
from triphase.learners import finetune, frozen, ncm, tpc
from triphase.learners.placement import move
from triphase.maths import bias, masking
from triphase.models import with_batch_renorm
from triphase.testing import FIRST, REST, tiny_images, tiny_model, tiny_stream

pytestmark = pytest.mark.filterwarnings("ignore:.*is a no-op:UserWarning")  # says torch of devices called meta
Make = Callable[[SplitClassifier, Context], Learner]


def raw() -> Memory:
    return Memory(12, seed=0)


def stored() -> Memory:
    return Memory(12, seed=0, store="latent")


LEARNERS: dict[str, Make] = {
    "tpc": lambda model, c: TPC(model, raw(), context=c),
    "tpc from scratch": lambda model, c: TPC(model, raw(), pretrained=False, distill=0.5, context=c),
    "tpc on latents": lambda model, c: TPC(model, stored(), context=c),
    "tpc without memory": lambda model, c: TPC(model, None, context=c),
    "ar1": lambda model, c: AR1(_renormalized(model), raw(), context=c),
    "bic": lambda model, c: BiC(model, raw(), stage2_epochs=2, context=c),
    "derpp": lambda model, c: DERpp(model, raw(), context=c),
    "derpp online": lambda model, c: DERpp(model, stored(), logits="online", context=c),
    "finetune": lambda model, c: FineTune(model, context=c),
    "replay": lambda model, c: FineTune(model, raw(), context=c),
    "joint": lambda model, c: Joint(model, Memory(None), context=c),
    "ncm": lambda model, c: NCM(model, context=c),
    "slda": lambda model, c: SLDA(model, pretrained=False, context=c),
    "ranpac": lambda model, c: RanPAC(model, n_projected=20, context=c),
    "slda_depths": lambda model, c: DepthSLDA(model, context=c),
    "anchored": lambda model, c: Anchored(model, raw(), context=c),
    "anchored, solved": lambda model, c: Anchored(model, stored(), adapted="discriminant", context=c),
}


def _renormalized(model: SplitClassifier) -> SplitClassifier:
    with_batch_renorm(model)
    return model


def learned_scores(make: Make, where: torch.device) -> Tensor:
    """Learn the tiny stream on a device, and evaluate."""
    learner = make(tiny_model(0), Context(device=where))
    for experience in tiny_stream().experiences:
        learner.learn(experience, FIRST if experience.index == 1 else REST)
    assert learner.model.device == where
    scores = learner.logits(unpack(latents(learner.model, tiny_images(), context=learner.context)))
    assert scores.device.type == "cpu", "scores of two devices could meet: they belong on the host"
    return scores


@pytest.mark.parametrize("name", LEARNERS)
def test_no_tensors_of_two_devices_meet_while_a_learner_learns_and_is_evaluated(name: str) -> None:
    expected = learned_scores(LEARNERS[name], torch.device("cpu"))
    with FakeDevice():
        assert torch.equal(learned_scores(LEARNERS[name], FAKE), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "function", "removed", "name"),
    [
        (SplitClassifier, "encode", ".to(self.device)", "tpc from scratch"),
        (TrainingLatents, "_gather", "self.upload", "tpc"),
        (Batches, "_minibatches", "self._latents.upload", "finetune"),
        (Batches, "image_latents", ".to(self.model.device)", "derpp"),
        (Batches, "memory_latents", ".to(self.model.device)", "bic"),
        (frozen, "features", ".to(model.device)", "slda"),
        (finetune, "predict", ".to(model.device)", "finetune"),
        (tpc, "predict", ".cpu()", "anchored"),
        (ncm, "latent_features", ".to(model.device)", "ncm"),
        (ncm, "latent_features", ".cpu()", "ncm"),
        (masking, "_outside", ".to(device)", "tpc"),
        (bias, "_rows", ".to(device)", "ar1"),
        (tpc, "normalize_", ".cpu()", "tpc without memory"),
        (tpc, "normalize_", ".to(weight.device)", "tpc without memory"),
        (DERpp, "_loss", ".to(logits)", "derpp"),
        (DERpp, "_logits", ".cpu()", "derpp"),
        (Anchored, "_adapted_model", ".to(self.model.device)", "anchored, solved"),
    ],
)
def test_one_copy_less_is_found(
    owner: Any, function: str, removed: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, function, without(getattr(owner, function), removed))
    with FakeDevice(), pytest.raises((AssertionError, RuntimeError), match="two devices|double precision"):
        learned_scores(LEARNERS[name], FAKE)


def without(function: Any, removed: str) -> Any:
    """A function as it would be without some words of its source, where they come last."""
    before, found, after = textwrap.dedent(inspect.getsource(function)).rpartition(removed)
    assert found
    names = dict(inspect.unwrap(function).__globals__)
    exec(f"from __future__ import annotations\n{before}{after}", names)
    return names[function.__name__]


@pytest.mark.parametrize("name", ["tpc", "ar1", "anchored, solved"])
def test_a_learner_moves_to_another_device_and_back_with_what_it_has_learned(name: str) -> None:
    one, two = tiny_stream().experiences
    stays, moves = (LEARNERS[name](tiny_model(0), Context(device="cpu")) for _ in range(2))
    for learner in (stays, moves):
        learner.learn(one, FIRST)
    stays.learn(two, REST)
    with FakeDevice():
        move(moves, FAKE)
        moves.learn(two, REST)
        assert moves.model.device == FAKE
        move(moves, "cpu")
    z = unpack(latents(stays.model, tiny_images()))
    assert torch.equal(moves.logits(z), stays.logits(z))


def test_a_run_begun_on_one_device_goes_on_on_another(tmp_path: Path, stop_at_save: StopAtSave) -> None:
    expected = run(LEARNERS["tpc"](tiny_model(), Context()), tiny_stream(), first=FIRST, rest=REST)
    stop_at_save(9)
    with pytest.raises(Killed):
        learner = LEARNERS["tpc"](tiny_model(), Context())
        run(learner, tiny_stream(), first=FIRST, rest=REST, out=tmp_path / "run", save_every=0)
    stop_at_save(None)
    learner = LEARNERS["tpc"](tiny_model(), Context())
    with FakeDevice(), pytest.warns(TriphaseWarning, match="Begun on cpu, continued on meta: .* close"):
        report = run(learner, tiny_stream(), first=FIRST, rest=REST, out=tmp_path / "run", device=FAKE)
    assert report.settings["device"] == "cpu, then meta"
    assert report.accuracy == expected.accuracy
    again = LEARNERS["tpc"](tiny_model(), Context())
    assert run(again, tiny_stream(), first=FIRST, rest=REST, out=tmp_path / "run").amca == report.amca


@pytest.mark.slow
def test_a_classifier_learns_and_answers_on_the_device_as_on_the_cpu() -> None:
    options: dict[str, Any] = {"backbone": "small_cnn", "image_size": 8, "memory": 60}
    x = tiny_images().read(torch.arange(36)).numpy()
    answers = []
    for where in (torch.device("cpu"), FAKE):
        with FakeDevice():
            classifier = ContinualClassifier(**options, device=where)
            for rows in (slice(0, 24), slice(24, 36)):
                classifier.partial_fit(x[rows], tiny_images().labels.tolist()[rows])
            answers.append(classifier.predict_proba(x))
            assert classifier.model_.network.device == where and classifier._inference[0].device == str(where)
    assert np.array_equal(answers[0], answers[1])


def test_a_classifier_warns_if_the_graphs_of_a_model_cannot_run_on_its_device(tmp_path: Path) -> None:
    for colour in ("red", "green"):
        paint(tmp_path / "photos" / colour, colour, range(12))
    options = {"backbone": "small_cnn", "image_size": 8, "memory": 60}
    teach(tmp_path / "model", tmp_path / "photos", options, context=Context(engine="onnx"))
    with FakeDevice(), pytest.warns(TriphaseWarning, match="ONNX Runtime offers nothing for meta here"):
        classifier = ContinualClassifier.load(tmp_path / "model", device=FAKE)
    assert classifier.predict(sorted((tmp_path / "photos").rglob("*.png"))[:1]).tolist() == ["green"]


def test_an_interrupted_lesson_goes_on_on_another_device_and_says_so(
    tmp_path: Path, stop_at_save: StopAtSave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lesson_checkpoint, "SAVE_EVERY", 0.0)
    for colour in ("red", "green"):
        paint(tmp_path / "photos" / colour, colour, range(12))
    options = {"backbone": "small_cnn", "image_size": 8, "memory": 60}
    stop_at_save(3)
    with pytest.raises(Killed):
        teach(tmp_path / "model", tmp_path / "photos", options)
    stop_at_save(None)
    with FakeDevice():
        outcome = teach(tmp_path / "model", tmp_path / "photos", options, context=Context(device=FAKE))
    assert outcome.published and "Begun on cpu, continued on meta" in " ".join(outcome.notes), outcome.notes
    assert Store(tmp_path / "model").version().info["device"] == "meta"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpu", "No device is called 'gpu'"),
        ("cpu:1", "No device is called 'cpu:1'"),
        ("cuda:x", "No device is called 'cuda:x'"),
        ("cuda:02", "No device is called 'cuda:02'"),
        ("cuda", "There is no device cuda: .*use auto or cpu"),
        ("mps", "There is no device mps"),
        ("cuda:2", "has 2, from cuda:0 to cuda:1; use auto or cpu"),
    ],
)
def test_a_device_that_is_not_there_is_refused(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_count", lambda kind: 2 if ":2" in name and kind == "cuda" else 0)
    with pytest.raises(InvalidValue, match=words):
        Context(device=name)


def test_a_device_of_torch_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_count", lambda kind: int(kind == "mps"))
    with pytest.raises(InvalidValue, match="There is no device cuda: .*use auto or cpu"):
        Context(device=torch.device("cuda"))
    for there in ("mps:0", "cpu"):
        assert device.choose(torch.device(there)) == torch.device(there)


@pytest.mark.parametrize(("there", "found"), [((), "cpu"), (("mps",), "mps"), (("mps", "cuda"), "cuda")])
def test_auto_takes_what_is_there(there: tuple[str, ...], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_count", lambda kind: int(kind in there))
    assert device.choose("auto").type == found


def test_bench_run_says_what_auto_has_found_and_records_it(triphase: Call) -> None:
    short = ("bench", "run", "digits-5", "--epochs", 3, "--per-class", 9, "--experiences", 1)
    silent = triphase(*short, "--out", "a", "--json")
    assert silent.err == "" and silent.document()["settings"]["device"] == "cpu"
    said = triphase(*short, "--out", "b", "--device", "auto", "--precision", "bfloat16", "--json")
    assert "Computing on cpu." in said.err and said.document()["settings"]["precision"] == "bfloat16"
    refused = triphase(*short, "--out", "c", "--device", "cuda:7")
    assert refused.status == 1 and "There is no device cuda:7" in refused.err
