"""A device that has little memory: passes through frozen parts, and sentences where even those do not help."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lessons import World, content, triphase
from oracle import RECIPE
from triphase import FineTune, run
from triphase.app.model import Model
from triphase.app.predictor import Predictor
from triphase.context import Context
from triphase.data.feature_cache import latents
from triphase.data.passes import in_passes
from triphase.errors import OutOfMemory
from triphase.models import SplitClassifier
from triphase.testing import tiny_images, tiny_model, tiny_stream


class Small(nn.Module):
    """A layer on a device that has room for so many images."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return x


def model_with(layer: Small, block: str) -> SplitClassifier:
    model = tiny_model()
    getattr(model, block).insert(0, layer)
    return model


def test_passes_are_halved_until_they_fit_and_the_size_is_remembered() -> None:
    sizes: list[int] = []

    def compute(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return Small(5)(x) * 2  # type: ignore[no-any-return]

    context, x = Context(), torch.arange(32.0)
    assert torch.equal(in_passes(compute, x, context), 2 * x)
    assert sizes == [32, 16, 8, 4, 4, 4, 4, 4, 4, 4, 4]
    assert torch.equal(in_passes(compute, x[:6], context), 2 * x[:6]) and sizes[-2:] == [4, 2]


def test_latents_are_computed_in_smaller_passes() -> None:
    expected = latents(tiny_model().eval(), tiny_images())
    found = latents(model_with(Small(3), "llf").eval(), tiny_images(), context=Context())
    torch.testing.assert_close(found, expected)


def test_a_device_without_room_for_one_image_is_an_error_of_one_sentence() -> None:
    with pytest.raises(OutOfMemory, match="too small for one image: use another --device"):
        latents(model_with(Small(0), "llf").eval(), tiny_images(), context=Context())


def test_a_minibatch_that_does_not_fit_is_an_error_of_one_sentence() -> None:
    with pytest.raises(OutOfMemory, match="does not suffice for a minibatch: go on with another --device"):
        run(FineTune(model_with(Small(2), "csf")), tiny_stream(), first=RECIPE)


def test_other_errors_of_torch_stay_what_they_are() -> None:
    def fail(x: Tensor) -> Tensor:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        in_passes(fail, torch.zeros(4), Context())


NO_ROOM = (
    torch.OutOfMemoryError("CUDA out of memory."),
    RuntimeError("DefaultCPUAllocator: can't allocate memory"),
)


@pytest.mark.parametrize("error", NO_ROOM, ids=["device", "host"])
@pytest.mark.parametrize(
    ("place", "words"), [("_check", "does not suffice for the model"), ("answers", "There is not enough memory")]
)
def test_an_answer_for_which_there_is_no_memory_is_one_sentence(
    error: Exception, place: str, words: str, original: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> None:
        raise error

    monkeypatch.setattr(Predictor, place, fail)
    answer = triphase("predict", original.base, next(original.test.rglob("*.png")), "--json")
    assert answer.status == 1 and words in answer.err and answer.err.count("\n") == 1
    assert words in answer.document()["error"]


def test_a_model_for_which_there_is_no_memory_is_not_called_damaged(
    original: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> None:
        raise NO_ROOM[0]

    before = content(original.base)
    monkeypatch.setattr(Model, "load_state_dict", fail)
    answer = triphase("forget", original.base, "red")
    assert answer.status == 1 and "does not suffice for the model: use another --device" in answer.err
    assert content(original.base) == before
