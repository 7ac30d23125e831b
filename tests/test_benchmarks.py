"""The paper's tables of settings as data, class orders, and what makes a benchmark a run."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from triphase import run
from triphase import state as files
from triphase.bench.benchmarks import BENCHMARKS, Benchmark, find
from triphase.bench.datasets import class_order, load
from triphase.bench.learners import LEARNERS
from triphase.bench.run import Report
from triphase.bench.run.options import RunOptions
from triphase.bench.run.setup import Setup, _weights, make_stream, minibatch_ratio, prepare, recipes
from triphase.errors import BadData, InvalidValue, Mismatch, TriphaseWarning
from triphase.learners import BiC

PAPER = {  # name: epochs first and then, n_mbe:n_mbr, memory, backbone (the paper's tables of hyper-parameters)
    "core50-41": (4, 4, (158, 98), 1500, "mobilenet_v1"),
    "imagenet-100": (35, 35, (50, 78), 20_000, "resnet18"),
    "cifar100-11": (200, 150, (142, 114), 2000, "resnet32"),
    "core50-nicv2-391": (4, 4, (42, 214), 1500, "mobilenet_v1"),
}
digits = find("digits-5")


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
    # The paper prints 0.05 twice for CORe50 41/10-1; the second is taken for 0.02, as for NICv2 (SPEC 1.5).
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


# A/B-C


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


@pytest.mark.parametrize(
    ("name", "n_seen"), [("digits:5/2-2", [2, 4, 6, 8, 10]), ("digits:3/4-3", [4, 7, 10]), ("digits:2/1-1", [1, 2])]
)
def test_experiences_bring_as_many_classes_as_the_name_says(name: str, n_seen: list[int]) -> None:
    stream = make_stream(find(name), RunOptions(order=1), Path(), 8)
    assert list(stream.n_seen) == n_seen and stream.n_classes == n_seen[-1] == len(stream.names)
    known = 0
    for experience, seen in zip(stream.experiences, n_seen, strict=True):
        assert experience.classes == tuple(range(known, seen))
        known = seen
    assert set(stream.test.labels.tolist()) == set(range(known))


def test_a_class_order_decides_who_comes_first() -> None:
    stream = make_stream(digits, RunOptions(order=3), Path(), 8)
    order = class_order("digits", 10, 3)
    pairs = [{str(order[i]), str(order[i + 1])} for i in range(0, 10, 2)]
    assert [{stream.names[c] for c in e.classes} for e in stream.experiences] == pairs


@pytest.mark.parametrize(
    ("every", "points"), [(None, (1, 2, 3, 4, 5)), (2, (1, 3, 5)), (3, (1, 4, 5)), (9, (1, 5))]
)
def test_evaluation_may_be_seldom_but_never_misses_the_end(every: int | None, points: tuple[int, ...]) -> None:
    assert make_stream(BENCHMARKS["digits-5"], RunOptions(evaluate_every=every), Path(), 8).evaluate_after == points


def test_evaluation_may_be_seldom_with_repetition() -> None:
    stream = make_stream(find("digits:nic-31/2-1"), RunOptions(evaluate_every=14), Path(), 8)
    assert stream.evaluate_after == (1, 15, 29, 31)


def test_per_class_takes_a_subset_for_training_alone() -> None:
    full = make_stream(digits, RunOptions(), Path(), 8)
    some = make_stream(digits, RunOptions(per_class=7), Path(), 8)
    counts = Counter(label for e in some.experiences for label in e.images.labels.tolist())
    assert set(counts.values()) == {7}
    assert len(some.test) == len(full.test) == 450
    assert some.fingerprint != full.fingerprint


@pytest.mark.parametrize("cut", [{"per_class": 5}, {"classes": "0-9"}])
def test_a_published_list_of_images_cannot_be_cut(cut: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="core50-nicv2-391 is a published list of images: leave out --"):
        make_stream(find("core50-nicv2-391"), RunOptions(**cut), Path(), 128)


@pytest.mark.parametrize("name", ["digits:3/2-1", "digits:nic-7/2-1"])
def test_classes_leave_out_the_others_in_training_and_test(name: str) -> None:
    some = make_stream(find(name), RunOptions(order=1, classes="3,6-8"), Path(), 8)
    order = [str(c) for c in class_order("digits", 10, 1) if c in {3, 6, 7, 8}]
    assert some.names == (*sorted(order[:2]), *order[2:]) and some.n_classes == 4
    train, test, _ = load("digits", Path(), 8, skip_bad=False)
    for parts, source in (([e.images for e in some.experiences], train), ([some.test], test)):
        found = [(int(i), some.names[y]) for part in parts for i, y in zip(part.ids, part.labels, strict=True)]
        every = zip(source.ids.tolist(), source.labels.tolist(), strict=True)
        assert sorted(found) == sorted((i, str(y)) for i, y in every if y in {3, 6, 7, 8})


def test_classes_beyond_those_of_the_dataset_are_refused() -> None:
    with pytest.raises(InvalidValue, match="--classes names class 10, but the dataset has 0 to 9"):
        make_stream(find("digits:2/1-1"), RunOptions(classes="9-12"), Path(), 8)
    with pytest.raises(InvalidValue, match="digits-5 needs 10 classes, but --classes leaves 3"):
        make_stream(digits, RunOptions(classes="0-2"), Path(), 8)


def test_an_imagenet_of_few_images_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / split / "n01440764").mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / split / "n01440764" / "n01440764_1.JPEG")
    with pytest.warns(TriphaseWarning, match="holds 1 of ImageNet's 1,281,167 training images and 1 of 50,000"):
        load("imagenet", tmp_path, 8, skip_bad=False)


def test_an_incremental_head_does_not_know_how_many_classes_will_come() -> None:
    assert make_stream(digits, RunOptions(head="incremental"), Path(), 8).n_classes is None


# With repetition


@pytest.mark.parametrize(
    ("name", "n"), [("digits:nic-31/2-1", 31), ("digits:nic-13/5-3", 13), ("digits:nic-3/10-5", 3)]
)
@pytest.mark.parametrize("order", [0, 1])
def test_with_repetition_every_class_comes_back_with_new_images(name: str, n: int, order: int) -> None:
    benchmark = find(name)
    assert benchmark.shape is not None
    _, first, then = benchmark.shape
    stream = make_stream(benchmark, RunOptions(order=order), Path(), 8)
    assert len(stream.experiences) == n and stream.n_seen[0] == first and stream.n_seen[-1] == 10
    visits = Counter(label for e in stream.experiences for label in e.classes)
    places = first + then * (n - 1)
    assert min(visits.values()) >= 2 and max(visits.values()) <= -(-places // 10)
    assert all(len(e.classes) <= then for e in stream.experiences[1:])
    ids = [i for e in stream.experiences for i in e.images.ids.tolist()]
    assert len(ids) == len(set(ids)) == 1347, "every image is shown once"
    pieces = Counter((label, e.index) for e in stream.experiences for label in e.images.labels.tolist())
    for label in range(10):
        sizes = [size for (of, _), size in pieces.items() if of == label]
        assert max(sizes) - min(sizes) <= 1


def test_with_repetition_classes_enter_in_their_order_one_after_the_other() -> None:
    stream = make_stream(find("digits:nic-31/2-1"), RunOptions(order=3), Path(), 8)
    assert {*stream.names[:2]} == {str(label) for label in class_order("digits", 10, 3)[:2]}
    assert list(stream.names[2:]) == [str(label) for label in class_order("digits", 10, 3)[2:]]
    assert {b - a for a, b in zip(stream.n_seen, stream.n_seen[1:], strict=False)} == {0, 1}
    assert stream.evaluation == "all" and find("digits:nic-31/2-1").title == "Digits NIC 31/2-1"
    again = make_stream(find("digits:nic-31/2-1"), RunOptions(order=3), Path(), 8)
    assert again.fingerprint == stream.fingerprint


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("digits:nic-18/2-1", "19 places.*10 classes comes at least twice.*at least 19 lessons"),
        ("digits:nic-5/11-5", "at most 10 classes at a time"),
        ("digits:nic-5/2-11", "at most 10 classes at a time"),
        ("digits:nic-2001/2-1", r"Class \d has \d+ images for \d+ lessons; ask for fewer"),
    ],
)
def test_a_repetition_that_cannot_be_is_refused(name: str, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        make_stream(find(name), RunOptions(), Path(), 8)


# Class orders


def test_order_0_of_cifar100_is_icarls() -> None:
    assert list(class_order("cifar100", 100, 0)[:10]) == [68, 56, 78, 8, 23, 84, 90, 65, 74, 76]


def test_order_0_of_digits_is_the_natural_one() -> None:
    assert list(class_order("digits", 10, 0)) == list(range(10))


@pytest.mark.parametrize(("dataset", "n_classes"), [("cifar100", 100), ("imagenet", 1000), ("core50", 50)])
def test_four_orders_are_permutations_and_differ(dataset: str, n_classes: int) -> None:
    orders = [tuple(class_order(dataset, n_classes, order)) for order in range(4)]
    assert all(sorted(order) == list(range(n_classes)) for order in orders)
    assert len(set(orders)) == 4
    assert orders == [tuple(class_order(dataset, n_classes, order)) for order in range(4)]


# Epochs and minibatches


@pytest.mark.parametrize("scale", [1e-6, 0.01, 0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_shorter_schedule_keeps_an_epoch_for_each_phase(name: str, scale: float) -> None:
    benchmark = BENCHMARKS[name]
    stream = make_stream(digits, RunOptions(), Path(), 8)
    for recipe, own in zip(
        recipes(benchmark, RunOptions(epochs_scale=scale), stream, 100), both(benchmark), strict=True
    ):
        assert recipe.epochs == max(3, round(own * scale))


def both(benchmark: Benchmark) -> tuple[int, int]:
    return benchmark.first.epochs, benchmark.rest.epochs


def test_epochs_given_count_for_every_experience() -> None:
    stream = make_stream(digits, RunOptions(), Path(), 8)
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
    stream = make_stream(digits, RunOptions(), Path(), 8)
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
    stream = make_stream(benchmark, RunOptions(), Path(), 8)
    _, rest = recipes(benchmark, RunOptions(), stream, 100)
    later = [len(experience.images) for experience in stream.experiences[1:]]
    assert (rest.n_mbe, rest.n_mbr) == minibatch_ratio(round(sum(later) / len(later)), 100, 32)


def test_with_repetition_minibatches_are_composed_alike_in_every_class_order() -> None:
    benchmark = find("digits:nic-31/2-1")
    streams = [make_stream(benchmark, RunOptions(order=order, per_class=60), Path(), 8) for order in range(4)]
    assert len({len(stream.experiences[1].images) for stream in streams}) > 1
    assert len({recipes(benchmark, RunOptions(), stream, 100)[1].n_mbe for stream in streams}) == 1


def test_without_replay_the_whole_minibatch_is_new() -> None:
    stream = make_stream(digits, RunOptions(), Path(), 8)
    _, rest = recipes(BENCHMARKS["core50-41"], RunOptions(), stream, 0)
    assert (rest.n_mbe, rest.n_mbr) == (256, 0)
    for composition, n_mbe in ((RunOptions(n_mbe=42, n_mbr=214), 256), (RunOptions(n_mbe=42), 42)):
        _, rest = recipes(BENCHMARKS["core50-41"], composition, stream, 0)
        assert (rest.n_mbe, rest.n_mbr) == (n_mbe, 0)


def test_the_learning_rate_given_is_not_that_of_training_from_scratch() -> None:
    """Only later experiences have a rate to search; the first one of CIFAR-100 has its schedule."""
    stream = make_stream(digits, RunOptions(), Path(), 8)
    first, rest = recipes(BENCHMARKS["cifar100-11"], RunOptions(lr=0.5), stream, 100)
    assert (first.lr, rest.lr) == (0.1, 0.5)
    first, rest = recipes(BENCHMARKS["core50-41"], RunOptions(lr=0.5), stream, 100)
    assert (first.lr, rest.lr) == (0.5, 0.5)


# Learners


@pytest.mark.parametrize("name", LEARNERS)
def test_each_learner_is_made_as_it_is_called(name: str) -> None:
    setup = prepare(digits, RunOptions(learner=name), Path())
    assert type(setup.learner) is LEARNERS[name].make
    assert setup.learner.state_dict()["settings"]["learner"] == name
    has_memory = getattr(setup.learner, "memory", None) is not None
    assert has_memory == (LEARNERS[name].memory != "unused")
    assert len(setup.stream.experiences) == (1 if name == "joint" else 5)


@pytest.mark.parametrize("name", [name for name, kind in LEARNERS.items() if kind.memory == "needed"])
def test_a_learner_that_replays_needs_a_memory(name: str) -> None:
    with pytest.raises(InvalidValue, match=f"The learner {name} needs a memory; give --memory"):
        prepare(digits, RunOptions(learner=name, replay="none"), Path())


@pytest.mark.parametrize(
    ("name", "options", "epochs"),
    [
        ("digits-5", RunOptions(), 100),
        ("digits-5", RunOptions(epochs_scale=0.01), 3),
        ("digits-5", RunOptions(learner="bic", epochs_scale=0.1, learner_options=(("stage2_epochs", 6),)), 6),
    ],
)
def test_the_second_stage_of_bic_is_part_of_the_schedule(name: str, options: RunOptions, epochs: int) -> None:
    learner = prepare(find(name), replace(options, learner="bic"), Path()).learner
    assert isinstance(learner, BiC) and learner.stage2_epochs == epochs


def test_all_learners_start_from_the_same_weights_and_conditions() -> None:
    setups = [prepare(digits, RunOptions(learner=name, seed=5), Path()) for name in LEARNERS]
    reference = setups[0]
    for setup in setups[1:]:
        for name, tensor in reference.learner.model.state_dict().items():
            assert tensor.equal(setup.learner.model.state_dict()[name])
        assert setup.first == reference.first
        n_mb = setup.rest.n_mbe + setup.rest.n_mbr  # without memory, the minibatch is as large
        assert n_mb == reference.rest.n_mbe + reference.rest.n_mbr
        assert replace(setup.rest, n_mbe=1, n_mbr=0) == replace(reference.rest, n_mbe=1, n_mbr=0)


def test_the_seed_decides_the_initial_weights() -> None:
    one, two = (prepare(digits, RunOptions(seed=seed), Path()).learner.model.state_dict() for seed in (0, 1))
    assert any(not one[name].equal(two[name]) for name in one)


# The first experience from another run


SHORT = RunOptions(epochs=3, memory=20, per_class=15)
three = find("digits:3/2-2")


def run_it(options: RunOptions, out: Path, benchmark: Benchmark = three) -> tuple[Setup, Report]:
    setup = prepare(benchmark, options, Path())
    return setup, run(
        setup.learner,
        setup.stream,
        first=setup.first,
        rest=setup.rest,
        out=out,
        settings=setup.settings,
        before=setup.before,
    )


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("first") / "run"
    run_it(replace(SHORT, learner="finetune", experiences=1), out)
    return out


def test_the_beginning_of_a_stream_is_tested_on_what_it_teaches(first: Path, tmp_path: Path) -> None:
    setup, report = run_it(replace(SHORT, learner="finetune", experiences=1), first)
    assert set(setup.stream.test.labels.tolist()) == set(setup.stream.experiences[0].classes)
    _, whole = run_it(replace(SHORT, learner="finetune"), tmp_path / "whole")
    assert report.accuracy[0] == whole.accuracy[0]


@pytest.mark.parametrize("learner", ["replay", "finetune", "ar1", "derpp"])
def test_the_first_experience_may_come_from_another_run(learner: str, first: Path, tmp_path: Path) -> None:
    options = replace(SHORT, learner=learner)
    run_it(options, tmp_path / "alone")
    setup, shared = run_it(replace(options, first_from=first), tmp_path / "shared")
    alone, other = (files.load(tmp_path / name / "weights.safetensors") for name in ("alone", "shared"))
    for block in alone:
        for name, tensor in alone[block].items():
            assert tensor.equal(other[block][name]), f"{block}.{name}"
    before = Report.from_json(files.read_json(first / "report.json"))
    assert shared.phase_seconds["E_1"] == before.train_seconds and shared.train_seconds > before.train_seconds
    assert shared.images > before.images > 0
    assert setup.settings["first_from"]["epochs"] == 3 and setup.first.epochs == 0


@pytest.mark.parametrize("learner", ["ncm", "slda", "ranpac"])
def test_from_scratch_closed_forms_take_the_first_experience_too(learner: str, tmp_path: Path) -> None:
    scratch = replace(three, pretrained=False)
    options = replace(SHORT, learner=learner, learner_options=(("n_projected", 50),) if learner == "ranpac" else ())
    run_it(replace(SHORT, learner="finetune", experiences=1), tmp_path / "first", scratch)
    _, alone = run_it(options, tmp_path / "alone", scratch)
    _, shared = run_it(replace(options, first_from=tmp_path / "first"), tmp_path / "shared", scratch)
    assert shared.accuracy == alone.accuracy
    with pytest.raises(InvalidValue, match=f"{learner} does not train its first experience by plain cross-entropy"):
        prepare(three, RunOptions(learner=learner, first_from=tmp_path / "first"), Path())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, "seed 0 instead of 1"),
        ({"order": 1}, "order 0 instead of 1"),
        ({"lr": 0.3}, r"first\.lr 0\.005 instead of 0\.3"),
        ({"epochs": 4}, r"first\.epochs 3 instead of 4"),
        ({"per_class": 9}, "per_class 15 instead of 9"),
        ({"norm": "brn"}, "norm 'bn' instead of 'brn'"),
    ],
)
def test_a_first_experience_of_other_settings_is_refused(changes: dict[str, Any], words: str, first: Path) -> None:
    options = replace(SHORT, learner="replay", first_from=first, **changes)
    with pytest.raises(
        Mismatch, match=f"cannot give the first experience: it has {words}; give another --first-from"
    ):
        prepare(three, options, Path())


def test_a_first_experience_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="holds no finished run.*--learner finetune --experiences 1"):
        prepare(three, replace(SHORT, learner="replay", first_from=tmp_path), Path())
    with pytest.raises(InvalidValue, match="tpc does not train its first experience by plain cross-entropy"):
        prepare(three, replace(SHORT, first_from=tmp_path), Path())


def test_no_epochs_without_a_run_that_had_them_is_refused() -> None:
    setup = prepare(three, replace(SHORT, learner="replay"), Path())
    for first, rest in ((0, 3), (3, 0)):
        with pytest.raises(InvalidValue, match="epochs must be at least 1, got 0"):
            run(
                setup.learner,
                setup.stream,
                first=replace(setup.first, epochs=first),
                rest=replace(setup.rest, epochs=rest),
            )


def test_missing_weights_are_not_passed_over_in_silence(tmp_path: Path) -> None:
    with pytest.warns(TriphaseWarning, match=r"mobilenet_v1_folded.safetensors is not in .*starts at random"):
        assert _weights(BENCHMARKS["core50-41"], RunOptions(), tmp_path) is None
    assert _weights(BENCHMARKS["core50-41"], RunOptions(backbone="resnet18"), tmp_path) is None
    assert _weights(BENCHMARKS["cifar100-11"], RunOptions(), tmp_path) is None
