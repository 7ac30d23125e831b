"""The recipes of a run: epochs, learning rates, and minibatches by Eq. 12."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triphase.bench.benchmarks import BENCHMARKS, Benchmark, find
from triphase.bench.run.benchmark_stream import make_stream
from triphase.bench.run.options import RunOptions
from triphase.bench.run.recipes import benchmark_defaults, minibatch_ratio, recipes
from triphase.bench.run.setup import prepare
from triphase.data.images import Images
from triphase.data.streams import Stream
from triphase.data.streams import stream as make
from triphase.learners import BiC

digits = find("digits-5")


@pytest.mark.parametrize("scale", [1e-6, 0.01, 0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_shorter_schedule_keeps_an_epoch_for_each_phase(name: str, scale: float) -> None:
    benchmark = BENCHMARKS[name]
    stream = make_stream(digits, RunOptions(), Path())
    for recipe, own in zip(
        recipes(benchmark, RunOptions(epochs_scale=scale), stream, 100), both(benchmark), strict=True
    ):
        assert recipe.epochs == max(3, round(own * scale))


def both(benchmark: Benchmark) -> tuple[int, int]:
    return benchmark.first.epochs, benchmark.rest.epochs


def test_epochs_given_count_for_every_experience() -> None:
    stream = make_stream(digits, RunOptions(), Path())
    first, rest = recipes(find("cifar100-11"), RunOptions(epochs=7), stream, 2000)
    assert first.epochs == rest.epochs == 7


@pytest.mark.parametrize(
    ("n_s", "n_replay", "n_mb", "ratio"),
    [(2400, 1500, 256, (158, 98)), (12_812, 20_000, 128, (50, 78)), (2500, 2000, 256, (142, 114))],
)
def test_minibatches_are_composed_by_equation_12(
    n_s: int, n_replay: int, n_mb: int, ratio: tuple[int, int]
) -> None:
    assert minibatch_ratio(n_s, n_replay, n_mb) == ratio


def test_nicv2_keeps_the_papers_ratio_where_the_rule_rounds_otherwise() -> None:
    assert minibatch_ratio(300, 1500, 256) == (43, 213)
    stream = make_stream(digits, RunOptions(), Path())
    _, rest = recipes(find("core50-nicv2-391"), RunOptions(), stream, 1500)
    assert (rest.n_mbe, rest.n_mbr) == (42, 214)


@given(st.integers(1, 10_000), st.integers(0, 100_000), st.integers(1, 512))
def test_a_minibatch_is_always_full_and_never_without_new_images(n_s: int, n_replay: int, n_mb: int) -> None:
    n_mbe, n_mbr = minibatch_ratio(n_s, n_replay, n_mb)
    assert n_mbe + n_mbr == n_mb and n_mbe >= 1 and n_mbr >= 0
    assert abs(n_mbe - max(1.0, n_mb * n_s / (n_s + n_replay))) <= 0.5
    if n_replay == 0:
        assert n_mbr == 0


def test_other_streams_get_the_ratio_of_their_later_experiences() -> None:
    benchmark = find("digits:5/2-2")
    stream = make_stream(benchmark, RunOptions(), Path())
    _, rest = recipes(benchmark, RunOptions(), stream, 100)
    later = [len(experience.images) for experience in stream.experiences[1:]]
    assert (rest.n_mbe, rest.n_mbr) == minibatch_ratio(round(sum(later) / len(later)), 100, 32)


def test_with_repetition_every_class_order_has_the_same_minibatch_ratio() -> None:
    benchmark = find("digits:nic-31/2-1")
    streams = [make_stream(benchmark, RunOptions(order=order, per_class=60), Path()) for order in range(4)]
    assert len({len(stream.experiences[1].images) for stream in streams}) > 1
    assert len({recipes(benchmark, RunOptions(), stream, 100)[1].n_mbe for stream in streams}) == 1


def test_without_replay_the_whole_minibatch_is_new() -> None:
    stream = make_stream(digits, RunOptions(), Path())
    _, rest = recipes(BENCHMARKS["core50-41"], RunOptions(), stream, 0)
    assert (rest.n_mbe, rest.n_mbr) == (256, 0)
    for composition, n_mbe in ((RunOptions(n_mbe=42, n_mbr=214), 256), (RunOptions(n_mbe=42), 42)):
        _, rest = recipes(BENCHMARKS["core50-41"], composition, stream, 0)
        assert (rest.n_mbe, rest.n_mbr) == (n_mbe, 0)


def test_the_learning_rate_given_is_not_that_of_training_from_scratch() -> None:
    """Only later experiences have a rate to search; the first one of CIFAR-100 has its schedule."""
    stream = make_stream(digits, RunOptions(), Path())
    first, rest = recipes(BENCHMARKS["cifar100-11"], RunOptions(lr=0.5), stream, 100)
    assert (first.lr, rest.lr) == (0.1, 0.5)
    first, rest = recipes(BENCHMARKS["core50-41"], RunOptions(lr=0.5), stream, 100)
    assert (first.lr, rest.lr) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("name", "options", "epochs"),
    [
        ("digits-5", RunOptions(), 100),
        ("core50-41", RunOptions(), 8),
        ("digits-5", RunOptions(epochs_scale=0.01), 100),
        ("digits-5", RunOptions(learner="bic", epochs_scale=0.1, learner_options=(("stage2_epochs", 6),)), 6),
    ],
)
def test_the_second_stage_of_bic_is_the_benchmarks_however_short_the_schedule(
    name: str, options: RunOptions, epochs: int
) -> None:
    options = replace(options, learner="bic")
    assert (benchmark_defaults(find(name), "bic") | options.own)["stage2_epochs"] == epochs
    if name == "digits-5":  # which needs no data
        learner = prepare(find(name), options, Path()).learner
        assert isinstance(learner, BiC) and learner.stage2_epochs == epochs


@pytest.mark.parametrize(
    ("name", "memory", "ratio"),
    [
        ("core50-41", 1500, (158, 98)),  # its own memory: as printed
        ("core50-41", 500, (212, 44)),
        ("core50-41", 5000, (83, 173)),
        ("core50-nicv2-391", 1500, (42, 214)),
        ("core50-nicv2-391", 600, (205, 51)),
    ],
)
def test_another_memory_gives_a_papers_benchmark_another_minibatch_ratio(
    name: str, memory: int, ratio: tuple[int, int]
) -> None:
    """Eq. 12 with experiences of 2400 images; the paper's ratios are for the memory of its tables."""
    stream = stream_of(2400)
    _, rest = recipes(BENCHMARKS[name], RunOptions(memory=memory), stream, memory)
    assert (rest.n_mbe, rest.n_mbr) == ratio
    _, given = recipes(BENCHMARKS[name], RunOptions(memory=memory, n_mbe=100, n_mbr=28), stream, memory)
    assert (given.n_mbe, given.n_mbr) == (100, 28)


def stream_of(n: int) -> Stream:
    """Two experiences of n images each."""
    pixel = torch.zeros(1, 1, 1, 1, dtype=torch.uint8)
    parts = [
        Images.from_array(pixel.expand(n, 1, 1, 1), torch.full((n,), c), torch.arange(n) + c * n) for c in (0, 1)
    ]
    return make(parts, parts[0], ["a", "b"])
