"""Latents are computed once, kept within a budget, and leave nothing behind."""

import copy
import gc
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from triphase import TPC, Memory, Recipe, stopwatch
from triphase import state as files
from triphase.data import feature_cache as module
from triphase.data.feature_cache import Budget, ahead, encode, set_budget
from triphase.errors import CannotWrite, InvalidValue, TriphaseError
from triphase.testing import FIRST, REST, tiny_images, tiny_model, tiny_stream


def learn(recipe: Recipe, memory: Memory | None = None) -> dict[str, Tensor]:
    learner = TPC(tiny_model(), Memory(12) if memory is None else memory)
    for experience in tiny_stream().experiences:
        learner.learn(experience, recipe)
    return {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}


def test_what_fits_the_budget_is_in_memory_and_given_back() -> None:
    budget = Budget(limit=1000)
    one = budget.allocate((10, 10), torch.float32)
    assert budget.used == 400
    view = one[2:5]
    del one
    gc.collect()
    assert budget.used == 400 and view.shape == (3, 10)  # a view keeps the whole
    del view
    gc.collect()
    assert budget.used == 0


def test_beyond_the_budget_values_are_the_same_from_an_unnamed_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    in_memory = learn(REST)
    monkeypatch.setattr(module.BUDGET, "limit", 0)  # the replay memory's cache obeys the same budget
    used = module.BUDGET.used
    in_file = learn(REST)
    assert module.BUDGET.used <= used
    assert all(torch.equal(in_memory[name], tensor) for name, tensor in in_file.items())
    assert list(tmp_path.glob("triphase*")) == []


def test_a_killed_process_leaves_no_file_behind(tmp_path: Path) -> None:
    script = (
        "import torch, sys; from triphase.data.feature_cache import Budget\n"
        "t = Budget(limit=0).allocate((1000, 1000), torch.float32); t.fill_(3)\n"
        "print(float(t.mean()), flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, env=environment, text=True)
    assert process.stdout is not None and process.stdout.readline() == "3.0\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_beyond_the_budget_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(TriphaseError, match="set TMPDIR to a larger disk or raise the budget"):
        Budget(limit=0).allocate((4,), torch.float32)


def test_the_budget_can_be_set_and_must_make_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUDGET", Budget(limit=1))
    set_budget(3)
    assert module.BUDGET.limit == 3 << 20
    with pytest.raises(InvalidValue, match="must not be negative"):
        set_budget(-1)


@pytest.mark.parametrize("augment", ["none", "flip"])
def test_half_precision_latents_end_close_to_single_precision(augment: str) -> None:
    single = learn(replace(REST, augment=augment))
    half = learn(replace(REST, augment=augment, latents="float16"))
    for name, tensor in single.items():
        torch.testing.assert_close(half[name], tensor, rtol=0.05, atol=0.02)


def test_kept_crops_are_drawn_once_and_stay_with_the_memory() -> None:
    recipe = replace(REST, augment="crop+flip", views=3)
    learner = TPC(tiny_model(), Memory(12))
    learner.learn(tiny_stream().experiences[0], recipe)
    assert learner.memory is not None
    before = dict(zip(learner.memory["id"].tolist(), learner.memory["views"], strict=True))
    learner.learn(tiny_stream().experiences[1], recipe)
    after = dict(zip(learner.memory["id"].tolist(), learner.memory["views"], strict=True))
    kept = before.keys() & after.keys()
    assert len(kept) > 3 and all(torch.equal(before[i], after[i]) for i in kept)
    assert all(views.shape[0] == 3 and len(views.flatten(1).unique(dim=0)) > 1 for views in after.values())


def test_kept_crops_resume_bit_for_bit_and_may_begin_later() -> None:
    recipe = replace(REST, augment="crop+flip", views=2)
    one, two = tiny_stream().experiences
    learner = TPC(tiny_model(), Memory(12))
    learner.learn(one, recipe)
    saved: list[dict[str, object]] = []
    learner.learn(two, recipe, lambda step: saved.append(copy.deepcopy(learner.state_dict())))
    for state in saved[::3]:
        again = TPC(tiny_model(), Memory(12))
        again.load_state_dict(state)
        again.learn(two, recipe)
        for name, tensor in learner.model.state_dict().items():
            assert torch.equal(again.model.state_dict()[name], tensor)
    mixed = TPC(tiny_model(), Memory(12))
    mixed.learn(one, FIRST)
    mixed.learn(two, recipe)  # what the memory held before gets its crops now
    assert mixed.memory is not None and mixed.memory["views"].shape[:2] == (len(mixed.memory), 2)


def test_each_image_passes_llf_once_per_view(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = 0
    model = tiny_model()

    def count(module: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal passed
        passed += len(output)

    model.llf.register_forward_hook(count)
    learner = TPC(model, Memory(12))
    n_chunks = 0
    for experience in tiny_stream().experiences:
        learner.learn(experience, replace(REST, epochs=10))
        n_chunks += -(-len(experience.images) // module.CHUNK)
    assert passed == 2 * n_chunks * module.CHUNK  # two views; chunks are always full; nothing more for the memory


def test_things_are_prepared_ahead_in_order_and_failures_arrive() -> None:
    assert list(ahead(range(7), lambda i: i * i)) == [i * i for i in range(7)]

    def fail(i: int) -> int:
        if i == 2:
            raise InvalidValue("no third one")
        return i

    with pytest.raises(InvalidValue, match="no third one"):
        list(ahead(range(5), fail))


def test_encoding_in_half_precision_rounds_the_single_precision_values() -> None:
    model = tiny_model()
    model.freeze("llf")
    x = tiny_images().read(torch.arange(20))
    single, half = (encode(model, 20, x.__getitem__, dtype=dtype) for dtype in (torch.float32, torch.float16))
    assert torch.equal(single.half(), half)


def test_shared_latents_are_computed_once_and_depend_on_all_that_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FOLDER", None)
    module.share(tmp_path / "shared")
    calls: list[int] = []
    original = module.encode

    def counted(*arguments: Any, **options: Any) -> Tensor:
        calls.append(1)
        return original(*arguments, **options)

    monkeypatch.setattr(module, "encode", counted)
    images, model = tiny_images(), tiny_model()
    model.eval()
    first = module.views_of(model, images, 2, torch.float32)
    assert torch.equal(module.views_of(model, images, 2, torch.float32), first) and len(calls) == 1
    module.views_of(model, images, 1, torch.float32)  # other views
    module.views_of(model, images.select(torch.arange(5)), 2, torch.float32)  # other images
    module.views_of(model, images.resized(12), 2, torch.float32)  # another size
    with torch.no_grad():
        next(iter(model.llf.parameters())).add_(1)
    assert not torch.equal(module.views_of(model, images, 2, torch.float32), first)  # another llf
    assert len(calls) == 5
    for path in (tmp_path / "shared").iterdir():
        path.write_bytes(path.read_bytes()[:50])
    module.views_of(model, images, 2, torch.float32)  # a damaged file is made again
    assert len(calls) == 6


def test_who_is_given_latents_is_charged_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FOLDER", tmp_path / "shared")
    monkeypatch.setattr(stopwatch, "seconds", dict.fromkeys(stopwatch.PARTS, 0.0))
    monkeypatch.setattr(stopwatch, "borrowed", 0.0)
    images, model = tiny_images(), tiny_model().eval()
    module.views_of(model, images, 2, torch.float32)
    spent = dict(stopwatch.seconds)
    assert spent["llf"] > 0 and stopwatch.borrowed == 0
    module.views_of(model, images, 2, torch.float32)
    assert stopwatch.seconds == pytest.approx({part: 2 * seconds for part, seconds in spent.items()})
    assert stopwatch.borrowed == pytest.approx(sum(spent.values()))


def test_latents_too_large_to_share_or_to_write_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, model = tiny_images(), tiny_model().eval()
    monkeypatch.setattr(module.BUDGET, "limit", 0)
    monkeypatch.setattr(module, "_FOLDER", tmp_path / "small")
    expected = module.views_of(model, images, 2, torch.float32)
    assert not (tmp_path / "small").exists(), "three copies would not fit into the budget"
    monkeypatch.setattr(module.BUDGET, "limit", 1 << 30)

    def full(path: Path, blob: bytes) -> None:
        raise CannotWrite("no room")

    monkeypatch.setattr(files, "write", full)
    assert torch.equal(module.views_of(model, images, 2, torch.float32), expected)


def test_two_runs_may_share_the_same_latents_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one of them is saving, another computes, saves and renames the same."""
    monkeypatch.setattr(module, "_FOLDER", tmp_path)
    images, model = tiny_images(), tiny_model().eval()
    fsync, mine, others = os.fsync, os.getpid(), list[Tensor]()

    def meanwhile(descriptor: int) -> None:
        fsync(descriptor)
        if os.getpid() == mine and not others:
            monkeypatch.setattr(os, "getpid", lambda: mine + 1)
            others.append(module.views_of(model, images, 2, torch.float32))
            monkeypatch.setattr(os, "getpid", lambda: mine)

    monkeypatch.setattr(os, "fsync", meanwhile)
    z = module.views_of(model, images, 2, torch.float32)
    assert torch.equal(others[0], z) and len(list(tmp_path.iterdir())) == 1


def test_inside_recalling_the_same_images_pass_llf_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = module.encode

    def counted(*arguments: Any, **options: Any) -> Tensor:
        calls.append(1)
        return original(*arguments, **options)

    monkeypatch.setattr(module, "encode", counted)
    images, model = tiny_images(), tiny_model()
    with module.recalling():
        whole = module.views_of(model, images, 2, torch.float32)
        part = module.views_of(model, images.select(torch.tensor([4, 2])), 1, torch.float32)
        assert torch.equal(part, whole[[4, 2], :1]) and len(calls) == 1
        module.views_of(tiny_model(), images, 1, torch.float32)  # another network
        assert len(calls) == 2
    module.views_of(model, images, 2, torch.float32)
    assert len(calls) == 3
