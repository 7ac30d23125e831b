"""Minibatches: which samples they hold, and that z is the same however it is computed."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from triphase.context import Context
from triphase.data import augment
from triphase.data.batches import Batches, Minibatch
from triphase.data.feature_cache import encode
from triphase.data.images import Images
from triphase.data.memory import HELD_OUT, Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.models import SplitClassifier, linear_head
from triphase.testing import tiny_images, tiny_model

Store = Literal["raw", "latent"]
SEED = 3
KEPT: dict[bool, Literal["float32", "off"]] = {True: "float32", False: "off"}


@cache
def frozen_model() -> SplitClassifier:
    """llf and csf frozen, with running statistics that are not those of a new network."""
    model = tiny_model()
    model.train()
    x = tiny_images().read(torch.arange(36))
    with torch.no_grad():
        for _ in range(3):
            model(x)
    model.freeze("llf")
    model.freeze("csf")
    return model


def experience(n: int = 13, index: int = 2, start: int = 0) -> Experience:
    return Experience(index, tiny_images(per_class=30).select(torch.arange(start, start + n)))


def memory_of(
    model: SplitClassifier, n: int = 11, store: Store = "raw", dtype: torch.dtype = torch.float32
) -> Memory:
    """A memory with n samples of earlier experiences; the memory's cache is empty."""
    memory = Memory(n, seed=0, store=store, dtype=dtype)
    source = tiny_images(per_class=30).select(torch.arange(60, 120))
    lesson = Experience(1, source.select((source.labels < n).nonzero().view(-1)))
    Batches(model, lesson, memory, Recipe(latents="off"), seed=SEED).update_memory()
    assert len(memory) == n
    memory.cache.clear()
    return memory


def grid(epochs: int, steps: int) -> list[tuple[int, int]]:
    return [(epoch, step) for epoch in range(epochs) for step in range(steps)]


def served(batches: Batches, epochs: int) -> list[Minibatch]:
    return list(batches.mixed(grid(epochs, batches.n_mixed)))


def close(a: Iterable[Minibatch], b: Iterable[Minibatch]) -> None:
    """The same samples exactly, and the same z up to rounding."""
    for one, other in zip(a, b, strict=True):
        assert torch.equal(one.rows, other.rows) and torch.equal(one.slots, other.slots)
        assert torch.equal(one.y, other.y) and one.n_current == other.n_current
        torch.testing.assert_close(one.z, other.z, atol=1e-5, rtol=1e-5)


# Which samples


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 9), st.integers(1, 9))
def test_epoch_serves_each_sample_once_beside_exactly_n_mbr_of_replay(
    n: int, n_mbe: int, n_mbr: int, size: int
) -> None:
    model = SplitClassifier(nn.Identity(), nn.Flatten(), linear_head(108, 4), image_size=6)
    memory = memory_of(model, size)
    batches = Batches(model, experience(n), memory, Recipe(n_mbe=n_mbe, n_mbr=n_mbr), seed=SEED)
    assert batches.n_mixed == -(-n // n_mbe)
    minibatches = served(batches, epochs=3)
    for epoch in range(3):
        some = minibatches[epoch * batches.n_mixed : (epoch + 1) * batches.n_mixed]
        assert sorted(torch.cat([mb.rows for mb in some]).tolist()) == list(range(n))
        sizes = [mb.n_current for mb in some]
        if n <= n_mbe or n_mbe + n_mbr < 8 or n % n_mbe == 0 or n % n_mbe + n_mbr >= 8:
            assert sizes[:-1] == [n_mbe] * (batches.n_mixed - 1)  # the last one may be partial
        else:
            assert max(sizes) - min(sizes) <= 1
    for mb in minibatches:
        assert (
            len(mb.rows) == mb.n_current
            and len(mb.slots) == n_mbr
            and len(mb.z) == len(mb.y) == mb.n_current + n_mbr
        )
        assert torch.equal(mb.y, torch.cat([batches.experience.images.labels[mb.rows], memory["y"][mb.slots]]))
        pixels = torch.cat([batches.experience.images.read(mb.rows), memory["x"][mb.slots]])
        assert torch.equal(mb.z, pixels.float())  # llf is the identity here
    replayed = torch.cat([mb.slots for mb in minibatches]).tolist()
    for k in range(len(replayed) // size):  # every permutation has every slot once, wherever minibatches begin
        assert sorted(replayed[k * size : (k + 1) * size]) == list(range(size))


def test_epochs_and_replayed_permutations_are_shuffled_differently() -> None:
    model = frozen_model()
    batches = Batches(model, experience(30), memory_of(model, 20), Recipe(n_mbe=30, n_mbr=20), seed=SEED)
    one, two = served(batches, epochs=2)
    assert not torch.equal(one.rows, two.rows) and not torch.equal(one.slots, two.slots)
    other = Batches(model, experience(30, index=3), batches.memory, batches.recipe, seed=SEED)
    assert not torch.equal(served(other, 1)[0].rows, one.rows)
    other = Batches(model, experience(30), batches.memory, batches.recipe, seed=SEED + 1)
    assert not torch.equal(served(other, 1)[0].rows, one.rows)


@given(st.permutations(grid(3, 4)), st.sampled_from(["none", "flip", "crop+flip"]))
def test_minibatch_does_not_depend_on_those_drawn_before(order: list[tuple[int, int]], name: str) -> None:
    model = frozen_model()
    memory = memory_of(model)
    recipe = Recipe(n_mbe=4, n_mbr=3, augment=name)
    expected = dict(
        zip(grid(3, 4), served(Batches(model, experience(), memory, recipe, seed=SEED), 3), strict=True)
    )
    batches = Batches(model, experience(), memory, recipe, seed=SEED)
    for position in order[:5]:
        (mb,) = batches.mixed([position])
        assert torch.equal(mb.rows, expected[position].rows) and torch.equal(mb.slots, expected[position].slots)
        assert torch.equal(mb.z, expected[position].z) and torch.equal(mb.y, expected[position].y)


def test_without_memory_or_without_replay_only_the_experience_is_served() -> None:
    model = frozen_model()
    for memory, n_mbr in ((None, 5), (Memory(5), 5), (memory_of(model), 0)):
        batches = Batches(model, experience(), memory, Recipe(n_mbe=4, n_mbr=n_mbr), seed=SEED)
        assert [len(mb.y) for mb in served(batches, 1)] == [4, 4, 4, 1]
        assert all(len(mb.slots) == 0 for mb in served(batches, 1))


@given(st.integers(1, 20), st.integers(1, 8))
def test_balanced_epoch_serves_each_sample_of_the_memory_once(size: int, n_mbe: int) -> None:
    model = frozen_model()
    memory = memory_of(model, size)
    batches = Batches(model, experience(), memory, Recipe(n_mbe=n_mbe, n_mbr=7), seed=SEED)
    assert batches.n_balanced == -(-size // n_mbe)
    minibatches = list(batches.balanced(grid(2, batches.n_balanced)))
    for epoch in range(2):
        some = minibatches[epoch * batches.n_balanced : (epoch + 1) * batches.n_balanced]
        assert sorted(torch.cat([mb.slots for mb in some]).tolist()) == list(range(size))
    for mb in minibatches:
        assert mb.n_current == len(mb.rows) == 0 and len(mb.y) <= n_mbe
        assert torch.equal(mb.y, memory["y"][mb.slots])
        torch.testing.assert_close(mb.z, model.encode(memory["x"][mb.slots]), atol=1e-5, rtol=1e-5)


def test_samples_of_other_splits_are_never_replayed() -> None:
    model = frozen_model()
    memory = memory_of(model, 12)
    memory.columns["split"][::3] = 1
    batches = Batches(model, experience(), memory, Recipe(n_mbe=4, n_mbr=5), seed=SEED)
    assert batches.n_balanced == 2
    minibatches = served(batches, 2) + list(batches.balanced(grid(1, 2)))
    assert {int(s) for mb in minibatches for s in mb.slots} == set(range(12)) - {0, 3, 6, 9}


# How z is computed


@pytest.mark.parametrize("name", ["none", "flip"])
@pytest.mark.parametrize("kind", ["no memory", "raw", "latent"])
@pytest.mark.parametrize("depth", ["llf", "csf"])
def test_cached_and_computed_minibatches_are_the_same(name: str, kind: str, depth: Literal["llf", "csf"]) -> None:
    model = frozen_model()
    memory = None if kind == "no memory" else memory_of(model, store="raw" if kind == "raw" else "latent")
    recipe = Recipe(n_mbe=4, n_mbr=3, augment=name)
    cached = Batches(model, experience(), memory, recipe, seed=SEED)
    computed = Batches(model, experience(), memory, replace(recipe, latents="off"), seed=SEED)
    steps = grid(3, cached.n_mixed)
    close(cached.mixed(steps, depth), computed.mixed(steps, depth))
    if memory is not None:
        cached.update_memory()  # raw: with latents for the cache; both then see the same memory
        steps = grid(2, cached.n_balanced)
        close(cached.balanced(steps), computed.balanced(steps))


def test_mirrored_views_are_really_drawn() -> None:
    model = frozen_model()
    batches = Batches(model, experience(), memory_of(model), Recipe(n_mbe=13, n_mbr=11, augment="flip"), seed=SEED)
    (mb,) = batches.mixed([(0, 0)])
    x = torch.cat([batches.experience.images.read(mb.rows), batches.memory["x"][mb.slots]])  # type: ignore[index]
    mirrored = [torch.allclose(z, m, atol=1e-5) for z, m in zip(mb.z, model.encode(x.flip(-1)), strict=True)]
    plain = [torch.allclose(z, p, atol=1e-5) for z, p in zip(mb.z, model.encode(x), strict=True)]
    assert all(a != b for a, b in zip(mirrored, plain, strict=True)) and 0 < sum(mirrored[:13]) < 13
    assert 0 < sum(mirrored[13:]) < 11


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("kind", ["no memory", "raw", "latent"])
def test_depth_csf_serves_the_features_of_z(cached: bool, kind: str) -> None:
    model = frozen_model()
    memory = None if kind == "no memory" else memory_of(model, store="raw" if kind == "raw" else "latent")
    recipe = Recipe(n_mbe=4, n_mbr=3, augment="flip")
    batches = Batches(model, experience(), memory, replace(recipe, latents=KEPT[cached]), seed=SEED)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for z, f in zip(batches.mixed(grid(2, 4)), batches.mixed(grid(2, 4), "csf"), strict=True):
        assert f.z.shape == (len(f.y), 16) and not f.z.requires_grad
        torch.testing.assert_close(f.z, model.features(z.z), atol=1e-5, rtol=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_finite_augmentations_cut_out_the_centre_of_larger_images() -> None:
    model = frozen_model()
    large = torch.randint(256, (8, 3, 10, 10), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    images = Images.from_array(large, torch.arange(8) % 4)
    centre = augment.center_crop(large, 6)
    for cached in (True, False):
        batches = Batches(model, Experience(1, images), None, Recipe(n_mbe=8, latents=KEPT[cached]), seed=SEED)
        (mb,) = batches.mixed([(0, 0)])
        torch.testing.assert_close(mb.z, model.encode(centre[mb.rows]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["crop", "crop+flip", "rrc", "rrc+flip"])
def test_random_crops_differ_between_epochs_and_have_the_size_of_the_network(name: str) -> None:
    model = frozen_model()
    recipe = Recipe(n_mbe=13, n_mbr=11, augment=name)
    batches = Batches(model, experience(), memory_of(model), recipe, seed=SEED)
    one, two = served(batches, 2)
    assert one.z.shape == two.z.shape == (24, 6, 6, 6)
    assert not torch.allclose(one.z[one.rows.argsort()], two.z[two.rows.argsort()])
    assert not one.z.requires_grad


def test_half_precision_latents_are_replayed_as_floats() -> None:
    model = frozen_model()
    half, full = (memory_of(model, store="latent", dtype=d) for d in (torch.float16, torch.float32))
    assert half["z"].dtype == torch.float16 and torch.equal(half["id"], full["id"])
    recipe = Recipe(n_mbe=4, n_mbr=3)
    for cached in (True, False):
        one = served(Batches(model, experience(), half, replace(recipe, latents=KEPT[cached]), seed=SEED), 1)
        other = served(Batches(model, experience(), full, replace(recipe, latents=KEPT[cached]), seed=SEED), 1)
        for a, b in zip(one, other, strict=True):
            assert a.z.dtype == torch.float32 and torch.equal(a.z[: a.n_current], b.z[: b.n_current])
            torch.testing.assert_close(a.z, b.z, atol=1e-2, rtol=1e-3)
    assert half.nbytes < full.nbytes


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("name", ["none", "crop"])
def test_gradient_reaches_llf_only_while_it_learns(frozen: bool, name: str) -> None:
    model = tiny_model().train()
    memory = memory_of(frozen_model())
    if frozen:
        model.freeze("llf")
    nn.init.normal_(model.head.weight)
    batches = Batches(model, experience(), memory, Recipe(n_mbe=4, n_mbr=3, augment=name), seed=SEED)
    (mb,) = batches.mixed([(0, 0)])
    model.tail(mb.z).square().sum().backward()
    assert mb.z.requires_grad != frozen
    assert all((p.grad is None) == frozen for p in model.llf.parameters())
    assert all(p.grad is not None for p in model.csf.parameters())
    with torch.no_grad():
        (mb,) = batches.mixed([(0, 1)])
    assert not mb.z.requires_grad


# What the memory gets


@pytest.mark.parametrize("name", ["none", "flip"])
def test_remembered_pixels_and_cached_latents_belong_together(name: str) -> None:
    model = frozen_model()
    memory = Memory(14, seed=0)
    views = augment.n_views(name)
    assert views is not None
    pixels = tiny_images(per_class=30)
    for index in range(1, 5):
        lesson = experience(25, index, start=25 * (index - 1))
        batches = Batches(model, lesson, memory, Recipe(n_mbe=8, n_mbr=4, augment=name), seed=SEED)
        served(batches, 1)
        batches.update_memory()
        assert torch.equal(memory["x"], pixels.read(memory["id"]))  # ids are positions
        assert torch.equal(memory["y"], pixels.labels[memory["id"]])
        assert torch.equal(memory.cache["z"], encode(model, len(memory), memory["x"].__getitem__, views))


def test_cached_latents_follow_a_change_of_augmentation() -> None:
    model = frozen_model()
    memory = Memory(14, seed=0)
    for index, name in enumerate(["none", "flip", "flip", "crop", "none"], start=1):
        lesson = experience(20, index, start=20 * (index - 1))
        recipe = Recipe(n_mbe=8, n_mbr=4, augment=name)
        batches = Batches(model, lesson, memory, recipe, seed=SEED)
        computed = Batches(model, lesson, memory, replace(recipe, latents="off"), seed=SEED)
        close(served(batches, 1), served(computed, 1))
        batches.update_memory()
        steps = grid(1, batches.n_balanced)
        close(batches.balanced(steps), computed.balanced(steps))


@pytest.mark.parametrize("cached", [True, False])
def test_latent_memory_holds_the_view_without_augmentation(cached: bool) -> None:
    model = frozen_model()
    memory = Memory(14, seed=0, store="latent")
    lesson = experience(25)
    Batches(model, lesson, memory, Recipe(augment="flip", latents=KEPT[cached]), seed=SEED).update_memory()
    assert "x" not in memory.columns and memory.cache == {}
    x = tiny_images(per_class=30).read(memory["id"])
    assert torch.equal(memory["z"], encode(model, len(x), x.__getitem__)[:, 0])


# A memory that gets nothing new, grows or holds larger images; what is held out; Phase III


def test_latent_memory_accepts_an_experience_that_brings_nothing_new() -> None:
    model = frozen_model()
    memory = Memory(14, seed=0, store="latent")
    for _ in range(2):
        Batches(model, experience(25), memory, Recipe(augment="crop"), seed=SEED).update_memory()
    assert len(memory) == 14


@pytest.mark.parametrize("filled", [True, False])
def test_balanced_features_are_those_of_the_updated_memory(filled: bool) -> None:
    model = frozen_model()
    memory = memory_of(model) if filled else Memory(14, seed=0)
    batches = Batches(model, experience(), memory, Recipe(n_mbe=4, n_mbr=3), seed=SEED)
    list(batches.mixed(grid(1, 4), "csf"))
    batches.update_memory()
    for mb in batches.balanced(grid(1, batches.n_balanced), "csf"):
        expected = model.features(model.encode(memory["x"][mb.slots]))
        torch.testing.assert_close(mb.z, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("first", "then"), [("rrc", "flip"), ("flip", "rrc"), ("rrc", "crop")])
def test_memory_of_larger_images_serves_any_augmentation(first: str, then: str) -> None:
    model = frozen_model()
    large = torch.randint(256, (16, 3, 10, 10), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    images = Images.from_array(large, torch.arange(16) % 4)
    memory = Memory(6, seed=0)
    for index, name in enumerate([first, then], start=1):
        lesson = Experience(index, images.select(torch.arange(8) + 8 * (index - 1)))
        batches = Batches(model, lesson, memory, Recipe(n_mbe=4, n_mbr=3, augment=name), seed=SEED)
        assert all(mb.z.shape[1:] == (6, 6, 6) for mb in served(batches, 1))
        batches.update_memory()
        assert all(mb.z.shape[1:] == (6, 6, 6) for mb in batches.balanced(grid(1, batches.n_balanced)))


def test_balanced_epoch_follows_the_memory_when_it_grows() -> None:
    model = frozen_model()
    memory = memory_of(model, 5)
    memory.capacity = 30
    batches = Batches(model, experience(), memory, Recipe(n_mbe=4, n_mbr=3), seed=SEED)
    list(batches.balanced([(0, 0)]))
    batches.update_memory()
    slots = torch.cat([mb.slots for mb in batches.balanced(grid(1, batches.n_balanced))])
    assert sorted(slots.tolist()) == list(range(len(memory)))


def test_held_out_images_are_never_drawn_but_enter_the_memory_as_such() -> None:
    images = tiny_images()
    held = torch.zeros(len(images), dtype=torch.bool)
    held[::4] = True
    hashes = torch.arange(len(images)) * 7
    experience = Experience(1, images, held, {"hash": hashes})
    memory = Memory(100)
    batches = Batches(tiny_model(), experience, memory, Recipe(n_mbe=8), seed=0)
    rows = torch.cat([mb.rows for mb in batches.mixed([(0, step) for step in range(batches.n_mixed)])])
    assert sorted(rows.tolist()) == (~held).nonzero().view(-1).tolist()
    assert len(experience.training) == int((~held).sum())
    batches.update_memory()
    assert set(memory["id"][memory.slots(HELD_OUT)].tolist()) == set(images.ids[held].tolist())
    assert torch.equal(memory["hash"], memory["id"] * 7)
    replayed = batches.balanced([(0, step) for step in range(batches.n_balanced)])
    drawn = torch.cat([mb.slots for mb in replayed])
    assert not torch.isin(drawn, memory.slots(HELD_OUT)).any()


def test_a_bounded_phase_3_draws_so_many_in_full_minibatches() -> None:
    memory = Memory(30)
    recipe = Recipe(n_mbe=4, n_mbr=4, balanced=10)
    batches = Batches(tiny_model(), Experience(1, tiny_images()), memory, recipe, seed=0)
    batches.update_memory()
    assert batches.n_balanced == 2
    slots = [mb.slots for mb in batches.balanced([(0, 0), (0, 1), (1, 0), (1, 1)])]
    assert [len(s) for s in slots] == [5, 5, 5, 5], "in place of 8 and 2"
    assert len(torch.cat(slots[:2]).unique()) == 10
    assert set(torch.cat(slots[:2]).tolist()) != set(torch.cat(slots[2:]).tolist())


@pytest.mark.parametrize("kind", ["raw", "latent"])
def test_crops_of_latents_are_drawn_by_position_and_leave_what_is_frozen_alone(kind: Store) -> None:
    model = frozen_model()

    def batches(**options: Any) -> Batches:
        return Batches(
            model, experience(), memory_of(model, store=kind), Recipe(n_mbe=5, n_mbr=4, **options), seed=SEED
        )

    plain, cropped = served(batches(), 2), served(batches(latent_crops="small"), 2)
    assert any(not torch.equal(a.z, b.z) for a, b in zip(plain, cropped, strict=True))
    assert all(a.z.shape == b.z.shape and torch.equal(a.y, b.y) for a, b in zip(plain, cropped, strict=True))
    (again,) = batches(latent_crops="small").mixed([(1, 2)])
    assert torch.equal(again.z, cropped[3 + 2].z)
    features = [list(batches(latent_crops=crops).mixed([(0, 0)], "csf"))[0].z for crops in (None, "small")]
    assert torch.equal(*features)


@pytest.mark.parametrize("size", [6, 8])
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"views": 2}, {"views": 3}),
        ({"views": 2}, {}),
        ({"views": 2}, {"augment": "flip"}),
        ({"views": 2}, {"views": 2, "latents": "off"}),
        ({"augment": "flip"}, {"views": 2}),
    ],
)
def test_recipes_may_change_between_experiences(first: dict[str, Any], then: dict[str, Any], size: int) -> None:
    model = frozen_model()
    pixels = torch.randint(256, (24, 3, size, size), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    images, memory = Images.from_array(pixels, torch.arange(24) % 4), Memory(6, seed=0)
    for index, changes in enumerate([first, then, first], start=1):
        lesson = Experience(index, images.select(torch.arange(8) + 8 * (index - 1)))
        recipe = replace(Recipe(n_mbe=4, n_mbr=3, augment="crop"), **changes)
        batches = Batches(model, lesson, memory, recipe, seed=SEED)
        assert all(mb.z.shape[1:] == (6, 6, 6) for mb in served(batches, 1))
        batches.update_memory()
        assert all(mb.z.shape[1:] == (6, 6, 6) for mb in batches.balanced(grid(1, batches.n_balanced)))
        assert len(memory) == 6


def test_random_crops_pass_the_engine_of_the_context() -> None:
    """ONNX Runtime computes z from pixels where llf is frozen; the values differ from torch's by rounding."""
    model, recipe = frozen_model(), Recipe(n_mbe=5, n_mbr=3, augment="crop+flip")
    onnx = Context(engine="onnx")
    with_torch, with_onnx = (
        Batches(model, experience(), memory_of(model), recipe, seed=SEED, context=context)
        for context in (Context(), onnx)
    )
    for expected, mb in zip(with_torch.mixed(grid(1, 3)), with_onnx.mixed(grid(1, 3)), strict=True):
        torch.testing.assert_close(mb.z, expected.z, rtol=1e-4, atol=1e-4)
    assert len(onnx.sessions) == 1
