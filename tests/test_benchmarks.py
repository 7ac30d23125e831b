"""The paper's tables of settings as data, and A/B-C over any dataset."""

from __future__ import annotations

import pytest

from triphase.bench.benchmarks import BENCHMARKS, find
from triphase.errors import InvalidValue

PAPER = {  # name: epochs first and then, n_mbe:n_mbr, memory, backbone (the paper's tables of hyper-parameters)
    "core50-41": (4, 4, (158, 98), 1500, "mobilenet_v1"),
    "imagenet-100": (35, 35, (50, 78), 20_000, "resnet18"),
    "cifar100-11": (200, 150, (142, 114), 2000, "resnet32"),
    "core50-nicv2-391": (4, 4, (42, 214), 1500, "mobilenet_v1"),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_settings_are_as_printed(name: str) -> None:
    benchmark = BENCHMARKS[name]
    first, rest, ratio, memory, backbone = PAPER[name]
    assert (benchmark.first.epochs, benchmark.rest.epochs) == (first, rest)
    assert (benchmark.rest.n_mbe, benchmark.rest.n_mbr) == ratio
    assert (benchmark.first.n_mbe, benchmark.first.n_mbr) == (128, 0)
    assert (benchmark.memory, benchmark.backbone) == (memory, backbone)


def test_the_learning_rates_that_are_searched_are_the_papers() -> None:
    grids = {name: benchmark.lr_grid for name, benchmark in BENCHMARKS.items()}
    # The paper prints 0.05 twice for CORe50 41/10-1; the second is taken for 0.02, as for NICv2.
    assert grids["core50-41"] == grids["core50-nicv2-391"] == (0.05, 0.02, 0.005, 0.002, 0.0005)
    assert grids["imagenet-100"] == (0.01, 0.005, 0.001)
    assert grids["cifar100-11"] == (0.1, 0.05, 0.01, 0.005, 0.001, 0.0005)


def test_what_is_searched_beside_the_learning_rate_is_the_papers() -> None:
    stages = {name: BENCHMARKS[name].grids["bic"]["stage2_epochs"] for name in PAPER}
    assert stages["core50-41"] == stages["core50-nicv2-391"] == (4, 8, 12)
    assert stages["imagenet-100"] == (20, 35, 50) and stages["cifar100-11"] == (50, 100, 150)
    for name in PAPER:
        assert BENCHMARKS[name].grids["derpp"] == {"alpha": (0.1, 0.2, 0.5), "beta": (0.5, 1.0)}
        assert set(BENCHMARKS[name].grids) == {"bic", "derpp"}, "TPC and AR1 search the rate alone"


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_default_learning_rate_is_on_the_grid(name: str) -> None:
    assert BENCHMARKS[name].rest.lr in BENCHMARKS[name].lr_grid


def test_only_cifar100_is_learned_from_scratch_with_a_falling_rate() -> None:
    scratch = [name for name, benchmark in BENCHMARKS.items() if not benchmark.pretrained]
    patient = [name for name, benchmark in BENCHMARKS.items() if benchmark.first.lr_schedule == "patience"]
    assert scratch == patient == ["cifar100-11"]
    cifar100 = BENCHMARKS["cifar100-11"]
    assert cifar100.first.lr == 0.1 and cifar100.rest.lr_schedule == "constant"


def test_weight_decay_and_augmentation_are_those_of_the_spec() -> None:
    settings = {
        n: (b.rest.weight_decay, b.rest.augment, b.rest.momentum) for n, b in BENCHMARKS.items() if n in PAPER
    }
    assert settings["core50-41"] == settings["core50-nicv2-391"] == (5e-4, "flip", 0.9)
    assert settings["imagenet-100"] == (1e-4, "rrc+flip", 0.9)
    assert settings["cifar100-11"] == (2e-4, "crop+flip", 0.9)


def test_core50_tests_all_classes_always_and_the_others_those_seen() -> None:
    everything = {name for name, benchmark in BENCHMARKS.items() if benchmark.evaluation == "all"}
    assert everything == {"core50-41", "core50-nicv2-391"}


def test_imagenet_is_evaluated_at_21_points() -> None:
    points = BENCHMARKS["imagenet-100"].evaluate_after
    assert len(points) == 21
    assert points[:3] == (1, 6, 11) and points[-2:] == (96, 100)
    assert {b - a for a, b in zip(points, points[1:-1], strict=False)} == {5}


def test_shapes_and_titles_are_the_papers() -> None:
    titles = {benchmark.name: (benchmark.title, benchmark.shape) for benchmark in BENCHMARKS.values()}
    assert titles["core50-41"] == ("CORe50 41/10-1", (41, 10, 1))
    assert titles["imagenet-100"] == ("ImageNet 100/10-10", (100, 10, 10))
    assert titles["cifar100-11"] == ("CIFAR100 11/50-5", (11, 50, 5))
    assert titles["core50-nicv2-391"] == ("CORe50 NICv2 391/10-1", None)
    for _, shape in titles.values():
        n_classes = {41: 50, 100: 1000, 11: 100, 5: 10}
        assert shape is None or shape[1] + shape[2] * (shape[0] - 1) == n_classes[shape[0]]


def test_any_dataset_may_be_cut_into_experiences() -> None:
    benchmark = find("cifar100:10/10-10")
    assert (benchmark.dataset, benchmark.shape, benchmark.title) == ("cifar100", (10, 10, 10), "CIFAR100 10/10-10")
    assert benchmark.memory == 1000 and benchmark.evaluation == "seen"
    assert find("folder:3/2-1").title == "Photos 3/2-1"


@pytest.mark.parametrize(
    "name",
    ["", "digits", "digits:5", "digits:5/2", "digits:5/2-2 ", "x:5/2-2", "digits:-5/2-2", "digits:cin-5/2-2"],
)
def test_what_is_no_benchmark_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="No benchmark is called .*digits-5.*DATASET:A/B-C.*DATASET:nic-A/B-C"):
        find(name)
