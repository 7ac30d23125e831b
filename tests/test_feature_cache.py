"""Latents are computed once, kept within a budget, and leave nothing behind."""

import copy
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from triphase import TPC, Memory, Recipe
from triphase import state as files
from triphase.budget import Budget
from triphase.context import Context
from triphase.data import feature_cache as module
from triphase.data.feature_cache import encode
from triphase.errors import CannotWrite
from triphase.testing import FIRST, REST, tiny_images, tiny_model, tiny_stream


class Counting(Budget):
    """A budget that counts what it is asked for."""

    allocated = 0

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        self.allocated += 1
        return super().allocate(shape, dtype)


def learn(recipe: Recipe, context: Context | None = None) -> dict[str, Tensor]:
    learner = TPC(tiny_model(), Memory(12), context=context)
    for experience in tiny_stream().experiences:
        learner.learn(experience, recipe)
    return {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}


def test_beyond_the_budget_values_are_the_same_from_an_unnamed_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    in_memory = learn(REST)
    budget = Counting(limit=0)
    in_file = learn(REST, Context(budget))
    assert budget.used == 0 and budget.allocated == 4  # latents and the cache of the memory, twice
    assert all(torch.equal(in_memory[name], tensor) for name, tensor in in_file.items())
    assert list(tmp_path.glob("triphase*")) == []


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


def test_encoding_in_half_precision_rounds_the_single_precision_values() -> None:
    model = tiny_model()
    model.freeze("llf")
    x = tiny_images().read(torch.arange(20))
    single, half = (encode(model, 20, x.__getitem__, dtype=dtype) for dtype in (torch.float32, torch.float16))
    assert torch.equal(single.half(), half)


def test_shared_latents_are_computed_once_and_depend_on_all_that_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Context(latents_folder=tmp_path / "shared")
    calls: list[int] = []
    original = module.encode

    def counted(*arguments: Any, **options: Any) -> Tensor:
        calls.append(1)
        return original(*arguments, **options)

    monkeypatch.setattr(module, "encode", counted)
    images, model = tiny_images(), tiny_model()
    model.eval()
    first = module.views_of(model, images, 2, torch.float32, context)
    assert torch.equal(module.views_of(model, images, 2, torch.float32, context), first) and len(calls) == 1
    module.views_of(model, images, 1, torch.float32, context)  # other views
    module.views_of(model, images.select(torch.arange(5)), 2, torch.float32, context)  # other images
    module.views_of(model, images.resized(12), 2, torch.float32, context)  # another size
    with torch.no_grad():
        next(iter(model.llf.parameters())).add_(1)
    assert not torch.equal(module.views_of(model, images, 2, torch.float32, context), first)  # another llf
    assert len(calls) == 5
    for path in (tmp_path / "shared").iterdir():
        path.write_bytes(path.read_bytes()[:50])
    module.views_of(model, images, 2, torch.float32, context)  # a damaged file is made again
    assert len(calls) == 6


def test_who_is_given_latents_is_charged_for_them(tmp_path: Path) -> None:
    images, model = tiny_images(), tiny_model().eval()
    maker, taker = Context(latents_folder=tmp_path / "shared"), Context(latents_folder=tmp_path / "shared")
    module.views_of(model, images, 2, torch.float32, maker)
    spent = maker.stopwatch.seconds
    assert spent["llf"] > 0 and maker.stopwatch.borrowed == 0
    module.views_of(model, images, 2, torch.float32, taker)
    assert taker.stopwatch.seconds == pytest.approx(spent)
    assert taker.stopwatch.borrowed == pytest.approx(sum(spent.values()))


def test_latents_too_large_to_share_or_to_write_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, model = tiny_images(), tiny_model().eval()
    folder = tmp_path / "small"
    expected = module.views_of(model, images, 2, torch.float32, Context(Budget(limit=0), folder))
    assert not (tmp_path / "small").exists(), "three copies would not fit into the budget"

    def full(path: Path, blob: bytes) -> None:
        raise CannotWrite("no room")

    monkeypatch.setattr(files, "write", full)
    again = module.views_of(model, images, 2, torch.float32, Context(Budget(limit=1 << 30), folder))
    assert torch.equal(again, expected)


def test_two_runs_may_share_the_same_latents_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one of them is saving, another computes, saves and renames the same."""
    images, model = tiny_images(), tiny_model().eval()
    context = Context(latents_folder=tmp_path)
    fsync, mine, others = os.fsync, os.getpid(), list[Tensor]()

    def meanwhile(descriptor: int) -> None:
        fsync(descriptor)
        if os.getpid() == mine and not others:
            monkeypatch.setattr(os, "getpid", lambda: mine + 1)
            others.append(module.views_of(model, images, 2, torch.float32, context))
            monkeypatch.setattr(os, "getpid", lambda: mine)

    monkeypatch.setattr(os, "fsync", meanwhile)
    z = module.views_of(model, images, 2, torch.float32, context)
    assert torch.equal(others[0], z) and len(list(tmp_path.iterdir())) == 1


def test_inside_reuse_latents_the_same_images_pass_llf_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = module.encode

    def counted(*arguments: Any, **options: Any) -> Tensor:
        calls.append(1)
        return original(*arguments, **options)

    monkeypatch.setattr(module, "encode", counted)
    images, model, context = tiny_images(), tiny_model(), Context()
    with context.reuse_latents():
        whole = module.views_of(model, images, 2, torch.float32, context)
        part = module.views_of(model, images.select(torch.tensor([4, 2])), 1, torch.float32, context)
        assert torch.equal(part, whole[[4, 2], :1]) and len(calls) == 1
        module.views_of(tiny_model(), images, 1, torch.float32, context)  # another network
        assert len(calls) == 2
    module.views_of(model, images, 2, torch.float32, context)
    assert len(calls) == 3
