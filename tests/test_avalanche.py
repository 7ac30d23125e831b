"""TPC as a strategy of Avalanche gives what `run` gives, and its benchmarks are streams here."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from fake_device import FAKE, FakeDevice
from triphase import TPC, Memory, Recipe, Stream, class_incremental, run
from triphase.data.images import Images, select_classes, subsample
from triphase.data.sources import digits, stream_from_avalanche
from triphase.errors import InvalidValue
from triphase.models import small_cnn
from triphase.torchvision_operators import declare_torchvision_operators

pytestmark = [
    pytest.mark.skipif(find_spec("avalanche") is None, reason="Avalanche is not installed: make test-avalanche"),
    pytest.mark.filterwarnings("ignore"),  # Avalanche's own
]
FIRST = Recipe(epochs=4, lr=0.005, csf_lr=0.01, n_mbe=32, augment="flip")
REST = Recipe(epochs=4, lr=0.005, csf_lr=0.01, n_mbe=32, n_mbr=32, augment="flip")


class Images01(Dataset[tuple[Tensor, int]]):
    """Images as ToTensor makes them."""

    def __init__(self, images: Images) -> None:
        self.x, self.targets = images.read(torch.arange(len(images))), images.labels.tolist()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.x[index] / 255, self.targets[index]


@pytest.fixture(scope="module")
def ours() -> Stream:
    train, test, names = digits()
    few, tested = (_by_content(subsample(images, n)) for images, n in ((train, 20), (test, 10)))
    return class_incremental(few, tested, names, first=2, then=2, n_experiences=3)


def _by_content(images: Images) -> Images:
    """The same images with ids that depend on their pixels, as those of other libraries have."""
    return Images.from_array(images.read(torch.arange(len(images))), images.labels)


@pytest.fixture(scope="module")
def theirs(ours: Stream) -> Any:
    declare_torchvision_operators()
    benchmarks = import_module("avalanche.benchmarks")
    module = import_module("avalanche.benchmarks.utils.classification_dataset")
    with_task = module._as_taskaware_supervised_classification_dataset
    per_experience = [select_classes(ours.test, e.classes) for e in ours.experiences]
    return benchmarks.benchmark_from_datasets(
        train=[with_task(Images01(e.images), task_labels=0) for e in ours.experiences],
        test=[with_task(Images01(images), task_labels=0) for images in per_experience],
    )


def test_the_results_are_those_of_run(ours: Stream, theirs: Any) -> None:
    strategies, metrics = import_module("triphase.avalanche"), import_module("avalanche.evaluation.metrics")
    plugins = import_module("avalanche.training.plugins")
    evaluator = plugins.EvaluationPlugin(
        metrics.accuracy_metrics(epoch=True, stream=True), metrics.loss_metrics(epoch=True, stream=True)
    )
    strategy = strategies.TPCStrategy(
        model=small_cnn(6), mem_size=30, first=FIRST, rest=REST, seed=3, evaluator=evaluator, t=0.3
    )
    for experience in theirs.train_stream:
        trained = strategy.train(experience)
    tested = strategy.eval(theirs.test_stream)

    learner = TPC(small_cnn(6), Memory(30, seed=3), seed=3, t=0.3)
    report = run(learner, ours, first=FIRST, rest=REST)
    for name, tensor in learner.model.state_dict().items():
        assert torch.equal(strategy.model.state_dict()[name], tensor), name
    accuracy = _metric(tested, "Top1_Acc_Stream/eval_phase")
    counts = torch.bincount(ours.test.labels, minlength=6)[:6]
    per_class = torch.tensor(report.accuracy[-1][:6])
    assert accuracy == pytest.approx(float((per_class * counts).sum() / counts.sum()), abs=1e-6)
    assert 0.2 < _metric(trained, "Top1_Acc_Epoch/train_phase") <= 1
    assert 0 < _metric(trained, "Loss_Epoch/train_phase") < 10


def _metric(results: dict[str, float], name: str) -> float:
    (value,) = (value for key, value in results.items() if key.startswith(name))
    return value


def test_a_benchmark_of_avalanche_is_a_stream_here(ours: Stream, theirs: Any) -> None:
    stream = stream_from_avalanche(theirs)
    for one, other in zip(stream.experiences, ours.experiences, strict=True):
        assert torch.equal(one.images.labels, other.images.labels)
        assert torch.equal(one.images.read(torch.arange(5)), other.images.read(torch.arange(5)))
    assert stream.names == tuple("012345") and stream.n_classes == 6


def test_classes_that_were_never_seen_are_never_right(theirs: Any) -> None:
    strategy = import_module("triphase.avalanche").TPCStrategy(
        model=small_cnn(0), mem_size=30, first=FIRST, rest=REST, evaluator=None
    )
    strategy.train(next(iter(theirs.train_stream)))
    strategy.eval(theirs.test_stream)
    assert strategy.model.n_classes == 2 and strategy.n_learned == 1


def test_evaluations_while_it_learns_change_nothing_and_may_come_before_any_class(theirs: Any) -> None:
    first = next(iter(theirs.train_stream))
    learned = []
    for eval_every in (-1, 1):
        evaluator = _accuracy()
        strategy = import_module("triphase.avalanche").TPCStrategy(
            model=small_cnn(0), mem_size=30, first=FIRST, rest=REST, evaluator=evaluator, eval_every=eval_every
        )
        strategy.train(first, eval_streams=[theirs.test_stream])
        learned.append(strategy.model.state_dict())
    for name, tensor in learned[0].items():
        assert torch.equal(learned[1][name], tensor), name
    (curve,) = (values for key, values in evaluator.get_all_metrics().items() if key.startswith("Top1_Acc_Stream"))
    assert curve[1][0] == 0 and len(curve[1]) == 1 + FIRST.epochs and curve[1][-1] > 0.1


def test_a_strategy_evaluates_on_the_device_that_it_learns_on(theirs: Any) -> None:
    first, answers = next(iter(theirs.train_stream)), []
    for where in ("auto", FAKE):
        with FakeDevice():
            strategy = import_module("triphase.avalanche").TPCStrategy(
                model=small_cnn(6), mem_size=30, first=FIRST, rest=REST, evaluator=_accuracy(), device=where
            )
            strategy.train(first)
            answers.append(_metric(strategy.eval([first]), "Top1_Acc_Stream/eval_phase"))
    assert strategy.model.device == FAKE and answers[0] == answers[1] > 0.5


def _accuracy() -> Any:
    metrics, plugins = import_module("avalanche.evaluation.metrics"), import_module("avalanche.training.plugins")
    return plugins.EvaluationPlugin(metrics.accuracy_metrics(stream=True), loggers=[])


def test_what_is_no_split_classifier_is_refused() -> None:
    with pytest.raises(InvalidValue, match="three blocks, got Linear"):
        import_module("triphase.avalanche").TPCStrategy(model=torch.nn.Linear(2, 2))


def test_an_avalanche_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = import_module("triphase.avalanche")
    monkeypatch.setattr(ready, "version", lambda name: "0.4.0")
    with pytest.raises(InvalidValue, match="Avalanche 0.4.0 is too old for this strategy, which needs 0.6"):
        ready._supervised_template()
