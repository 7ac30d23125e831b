"""The graph of a predictor is put together from the graphs of its blocks."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import triphase.app.answer_graph as module
from exports import pixels_of
from lessons import World
from triphase.app.answer_graph import OUTPUTS, answer_graph
from triphase.app.predictor import PARTS, Predictor
from triphase.app.store.versions import Store
from triphase.onnx_session import open_session


def parts_of(world: World) -> dict[str, Any]:
    return Store(world.base).load(parts=PARTS)[0]


def test_latents_lead_to_the_same_answers_as_pixels(original: World) -> None:
    predictor, parts = Predictor.open(original.base), parts_of(original)
    pixels = pixels_of(original.test, 8)
    whole = open_session(answer_graph(parts).SerializeToString(), 1)
    tail = open_session(answer_graph(parts, "latents").SerializeToString(), 1)
    by_pixels = whole.run(list(OUTPUTS), {"pixels": pixels.permute(0, 2, 3, 1).contiguous().numpy()})
    by_latents = tail.run(list(OUTPUTS), {"latents": predictor.latents(pixels).contiguous().numpy()})
    np.testing.assert_allclose(by_pixels[0], by_latents[0], atol=1e-5)
    assert by_pixels[1].tolist() == by_latents[1].tolist() and by_pixels[2].tolist() == by_latents[2].tolist()


@pytest.mark.parametrize("thresholds", [[], [None, None]], ids=["no thresholds", "thresholds at -inf"])
def test_a_model_that_rejects_nothing_calls_nothing_unknown(original: World, thresholds: list[None]) -> None:
    parts = parts_of(original)
    parts["inference"] |= {"thresholds": thresholds}
    session = open_session(answer_graph(parts).SerializeToString(), 1)
    noise = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    assert session.run(["unknown"], {"pixels": noise})[0].tolist() == [False] * 5


def test_blocks_of_other_operators_are_refused(original: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module._graph_of

    def newer(*arguments: object) -> onnx.ModelProto:
        graph = real(*arguments)  # type: ignore[arg-type]
        del graph.opset_import[:]
        graph.opset_import.append(helper.make_opsetid("", 18))
        return graph

    monkeypatch.setattr(module, "_graph_of", newer)
    with pytest.raises(ValueError, match="operators of the versions"):
        answer_graph(parts_of(original))
