"""Latents are computed once, kept within a budget, and leave nothing behind."""

import os
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from triphase import TPC, Memory, Recipe, SplitClassifier
from triphase import state as files
from triphase.budget import Budget
from triphase.context import Context
from triphase.data import augment
from triphase.data import feature_cache as module
from triphase.data.feature_cache import CHUNK, encode, features, latents, pack, unpack
from triphase.data.images import Images
from triphase.errors import CannotWrite
from triphase.testing import REST, tiny_images, tiny_model, tiny_stream


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


@cache
def frozen_model() -> SplitClassifier:
    """llf and csf frozen, with running statistics that are not those of a new network."""
    model = tiny_model().train()
    with torch.no_grad():
        model(tiny_images().read(torch.arange(36)))
    model.freeze("llf")
    model.freeze("csf")
    return model


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
    first = module.latent_views(model, images, 2, torch.float32, context)
    assert torch.equal(module.latent_views(model, images, 2, torch.float32, context), first) and len(calls) == 1
    module.latent_views(model, images, 1, torch.float32, context)  # other views
    module.latent_views(model, images.select(torch.arange(5)), 2, torch.float32, context)  # other images
    module.latent_views(model, images.resized(12), 2, torch.float32, context)  # another size
    with torch.no_grad():
        next(iter(model.llf.parameters())).add_(1)
    assert not torch.equal(module.latent_views(model, images, 2, torch.float32, context), first)  # another llf
    assert len(calls) == 5
    for path in (tmp_path / "shared").iterdir():
        path.write_bytes(path.read_bytes()[:50])
    module.latent_views(model, images, 2, torch.float32, context)  # a damaged file is made again
    assert len(calls) == 6


def test_who_is_given_latents_is_charged_for_them(tmp_path: Path) -> None:
    images, model = tiny_images(), tiny_model().eval()
    maker, taker = Context(latents_folder=tmp_path / "shared"), Context(latents_folder=tmp_path / "shared")
    module.latent_views(model, images, 2, torch.float32, maker)
    spent = maker.stopwatch.seconds
    assert spent["llf"] > 0 and maker.stopwatch.borrowed == 0
    module.latent_views(model, images, 2, torch.float32, taker)
    assert taker.stopwatch.seconds == pytest.approx(spent)
    assert taker.stopwatch.borrowed == pytest.approx(sum(spent.values()))


def test_latents_too_large_to_share_or_to_write_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, model = tiny_images(), tiny_model().eval()
    folder = tmp_path / "small"
    expected = module.latent_views(model, images, 2, torch.float32, Context(Budget(limit=0), folder))
    assert not (tmp_path / "small").exists(), "three copies would not fit into the budget"

    def full(path: Path, blob: bytes) -> None:
        raise CannotWrite("no room")

    monkeypatch.setattr(files, "write", full)
    again = module.latent_views(model, images, 2, torch.float32, Context(Budget(limit=1 << 30), folder))
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
            others.append(module.latent_views(model, images, 2, torch.float32, context))
            monkeypatch.setattr(os, "getpid", lambda: mine)

    monkeypatch.setattr(os, "fsync", meanwhile)
    z = module.latent_views(model, images, 2, torch.float32, context)
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
        whole = module.latent_views(model, images, 2, torch.float32, context)
        part = module.latent_views(model, images.select(torch.tensor([4, 2])), 1, torch.float32, context)
        assert torch.equal(part, whole[[4, 2], :1]) and len(calls) == 1
        module.latent_views(tiny_model(), images, 1, torch.float32, context)  # another network
        assert len(calls) == 2
    module.latent_views(model, images, 2, torch.float32, context)
    assert len(calls) == 3


@given(st.lists(st.integers(0, 79), min_size=1, max_size=2 * CHUNK + 3))
def test_latent_does_not_depend_on_its_company(rows: list[int]) -> None:
    model = frozen_model()
    x, some = tiny_images(per_class=20).read(torch.arange(80)), torch.tensor(rows)
    whole = encode(model, 80, x.__getitem__, 2)
    part = encode(model, len(some), lambda chunk: x[some[chunk]], 2)
    assert torch.equal(part, whole[some])
    assert torch.equal(features(model, part, Context()), features(model, whole, Context())[some])


def test_encoding_holds_both_views_packed_with_channels_last() -> None:
    model = frozen_model()
    x = tiny_images().read(torch.arange(36))
    z = encode(model, 36, x.__getitem__, 2)
    assert z.shape == (36, 2, 6, 6, 6) and not z.requires_grad
    torch.testing.assert_close(unpack(z[:, 0]), model.encode(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(unpack(z[:, 1]), model.encode(x.flip(-1)), atol=1e-5, rtol=1e-5)
    assert torch.equal(unpack(pack(model.encode(x))), model.encode(x))
    assert torch.equal(latents(model, tiny_images()), z[:, 0])
    assert unpack(latents(model, tiny_images())).is_contiguous(memory_format=torch.channels_last)


def test_a_pass_over_many_images_is_reported_from_its_first_to_its_last() -> None:
    context, events = Context(), list[dict[str, object]]()
    images = tiny_images(per_class=20)
    with context.reporting(events.append):
        latents(frozen_model(), images, context=context)
    latents(frozen_model(), images, context=context)
    assert events == [{"event": "encode", "done": done, "total": 80} for done in (0, CHUNK, 2 * CHUNK, 80)]


def test_latents_are_those_of_the_centre_of_larger_images() -> None:
    large = torch.randint(256, (8, 3, 10, 10), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    images, centre = Images.from_array(large, torch.arange(8) % 4), augment.center_crop(large, 6)
    model = frozen_model()
    assert torch.equal(latents(model, images), encode(model, 8, centre.__getitem__)[:, 0])
