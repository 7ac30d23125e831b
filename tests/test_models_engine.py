"""Frozen blocks through ONNX Runtime: the same numbers, made once, and torch where that fails."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from triphase.context import Context
from triphase.data.feature_cache import csf_features, encode
from triphase.errors import TriphaseWarning
from triphase.models import DepthFeatures, SplitClassifier, build, engine
from triphase.models.engine import OnnxBlock, engine_of, frozen_form, load_graph, provider_for, remember_graphs
from triphase.onnx_session import CPU, CUDA, Graph, open_session


@pytest.fixture(scope="module")
def lite0() -> SplitClassifier:
    model = build("efficientnet_lite0", 3, image_size=64).eval()
    model.freeze("llf")
    return model


def images(n: int = 3, size: int = 64) -> Tensor:
    return torch.randint(256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["efficientnet_lite0", "mobilenet_v1", "resnet18"])
def test_both_engines_compute_the_same_latents_and_features(name: str) -> None:
    model, x = build(name, 3, image_size=64, seed=1).eval(), images()
    model.freeze("llf")
    by_engine = []
    for chosen in ("torch", "onnx"):
        context = Context(engine=chosen)
        z = encode(model, len(x), x.__getitem__, context=context)[:, 0].permute(0, 3, 1, 2)
        with torch.no_grad():
            by_engine.append((z, csf_features(model, z, context)))
    for a, b in zip(*by_engine, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * float(a.std()))
        assert not torch.equal(a, b), "both came from the same engine"


def test_features_of_every_depth_are_exported_too(lite0: SplitClassifier) -> None:
    depths, context = DepthFeatures(lite0.csf, max_width=2560).eval(), Context(engine="onnx")
    z = torch.rand(5, 192, 2, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        form = frozen_form(depths, z, context)
        torch.testing.assert_close(form(z), depths(z), rtol=1e-3, atol=1e-4)
    assert isinstance(form, OnnxBlock)


def test_auto_takes_onnx_for_large_blocks_alone(lite0: SplitClassifier) -> None:
    auto = Context(engine="auto")
    assert engine_of(auto, lite0.llf).startswith("onnxruntime ")
    assert engine_of(auto, build("small_cnn").llf) == "torch"
    assert engine_of(Context(), lite0.llf) == "torch", "benchmarks stay on torch unless asked"


def test_a_graph_of_a_saved_state_is_used_without_exporting(
    lite0: SplitClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = images().float()
    saved = dict(frozen_form(lite0.llf, x, Context(engine="onnx")).state_dict())

    def never(*arguments: object) -> bytes:
        raise AssertionError("exported again")

    monkeypatch.setattr(engine, "export_graph", never)
    context = Context(engine="onnx")
    remember_graphs({"inference_llf": saved, "names": ["a"]}, context)
    again = frozen_form(lite0.llf, x, context)
    assert torch.equal(again(x), load_graph(saved)(x))


def test_another_block_gets_a_graph_of_its_own(lite0: SplitClassifier) -> None:
    context, x = Context(engine="onnx"), images().float()
    one = frozen_form(lite0.llf, x, context)(x)
    other = build("efficientnet_lite0", image_size=64, load_pretrained=False, seed=5).eval()
    assert not torch.allclose(one, frozen_form(other.llf, x, context)(x))


def test_a_graph_that_computes_something_else_is_not_used(
    lite0: SplitClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = nn.Sequential(lite0.llf, nn.Hardtanh(-0.5, 0.5))
    original = engine.export_graph
    monkeypatch.setattr(engine, "export_graph", lambda block, x: original(wrong, x))
    x = images().float()
    with pytest.warns(TriphaseWarning, match=r"computes something else, by up to .*PyTorch runs it"):
        form = frozen_form(lite0.llf, x, Context(engine="onnx"))
    assert not isinstance(form, OnnxBlock)
    with torch.no_grad():
        torch.testing.assert_close(form(x), lite0.llf(x), rtol=1e-3, atol=1e-3)


def test_a_block_that_cannot_be_exported_runs_in_torch() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            values: Tensor = torch.linalg.eigvals(x @ x.mT).real
            return values

    with pytest.warns(TriphaseWarning, match="ONNX Runtime cannot run this network"):
        form = frozen_form(Odd(), torch.rand(2, 4, 4), Context(engine="onnx"))
    assert form(torch.eye(3)[None]).tolist() == [[1.0, 1.0, 1.0]]


def test_a_damaged_graph_gets_a_sentence(lite0: SplitClassifier) -> None:
    saved = dict(frozen_form(lite0.llf, images().float(), Context(engine="onnx")).state_dict())
    for graph in (saved["graph"][:100], torch.zeros(64, dtype=torch.uint8), saved["graph"][:0]):
        with pytest.raises(ValueError, match="ONNX Runtime cannot load a graph"):
            load_graph(saved | {"graph": graph})


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_depends_neither_on_the_rows_beside_it_nor_on_the_number_of_threads(
    lite0: SplitClassifier, threads: int
) -> None:
    saved = frozen_form(lite0.llf, images().float(), Context(engine="onnx")).state_dict()["graph"].numpy().tobytes()
    x, graph = images(21).float().numpy(), Graph(saved, threads)
    (whole,) = open_session(saved, 1).run(None, {"x": x})
    assert len(graph._parts(x)) == 3
    for rows in (slice(0), slice(1), slice(2, 9), slice(21)):
        assert np.array_equal(graph(x[rows]), whole[rows])


def test_threads_share_a_block(lite0: SplitClassifier) -> None:
    x = images(8).float()
    form = frozen_form(lite0.llf, x, Context(engine="onnx"))
    alone = form(x)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(alone, other) for other in pool.map(lambda _: form(x), range(12)))


def test_on_an_accelerator_torch_runs_frozen_blocks_unless_the_runtime_offers_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import onnxruntime

    cuda, mps = torch.device("cuda"), torch.device("mps")
    assert provider_for(torch.device("cpu")) == CPU and provider_for(cuda) is None
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, CPU])
    assert provider_for(cuda) == CUDA and provider_for(mps) is None


def test_the_engine_is_chosen_by_the_device_of_the_block(lite0: SplitClassifier) -> None:
    assert engine_of(Context(engine="onnx"), copy.deepcopy(lite0.llf).to("meta")) == "torch"


def test_a_graph_can_be_copied_and_pickled(lite0: SplitClassifier) -> None:
    """As scikit-learn copies estimators and sends them to other processes."""
    saved = frozen_form(lite0.llf, images().float(), Context(engine="onnx")).state_dict()["graph"].numpy().tobytes()
    x, graph = images(3).float().numpy(), Graph(saved, 1)
    for again in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        np.testing.assert_array_equal(again(x), graph(x))
