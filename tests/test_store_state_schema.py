"""The parts of a version: structure, dtypes, sizes and finite numbers; and that they belong together."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from store_helpers import info, model
from triphase.app.store.state_checks import check_state
from triphase.app.store.state_schema import check_checkpoint, check_learner, validate_part
from triphase.app.store.tensors import check_structure, check_tree
from triphase.errors import CorruptState
from triphase.state import State


def test_a_valid_state_passes_whole_and_in_parts() -> None:
    check_state(model(2), info(2))
    answering = {name: part for name, part in model(2).items() if name.startswith("inference")}
    check_state(answering, info(2), wanted=("inference",))
    with pytest.raises(ValueError, match="there is no part taught"):
        check_state(answering, info(2), wanted=("inference", "taught"))


@pytest.mark.parametrize("name", [*model(1)])
def test_a_state_without_one_of_its_parts_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"there is no part {name}"):
        check_state({key: part for key, part in model(2).items() if key != name}, info(2))


def at(*keys: Any) -> Callable[[State, Any], None]:
    def put(state: State, value: Any) -> None:
        place: Any = state
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value(place[keys[-1]]) if callable(value) else value

    return put


WRONG: list[tuple[tuple[Any, ...], Any, str]] = [
    (("app", "temperature"), 0.0, "app.temperature: "),
    (("app", "temperature"), 2**70, "app.temperature: an integer should be a floating-point number"),
    (("app", "thresholds"), [2**70], "app.thresholds.0: an integer"),
    (("app", "temperature"), math.nan, "app.temperature: .*finite"),
    (("app", "names"), ["cat"], r"app.names is \['cat'\], and the version says"),
    (("app", "lessons"), 7, "app.lessons is 7, and the version says 2"),
    (("app", "options", "learner"), "slda", "app.options.learner is slda"),
    (("app", "options", "memory"), "much", "app.options.memory"),
    (("app", "exemplar_correct"), torch.ones(3, dtype=torch.bool), "exemplar_correct is 3"),
    (("app", "thresholds"), [1.0, 2.0, 3.0], "app.thresholds: .*at most 2"),
    (("app", "moments"), [{}], "app.moments.0.n: Field required"),
    (("taught", "ids"), lambda t: t[:-1], "taught.labels: it is int64 .4,., where taught is 3"),
    (("taught", "ids"), lambda t: t * 0, "names a photo twice"),
    (("taught", "labels"), lambda t: t + 2, "taught.labels are not all below 2"),
    (("taught", "labels"), lambda t: t.int(), "int32 .4,. should be int64 of 1 dimensions"),
    (("taught", "held_out"), torch.tensor([77]), "holds out one that was not taught"),
    (("taught",), None, "taught."),
    (("known",), [0, 0], "known names a class twice"),
    (("known",), [0, 5], "known are not all below 2"),
    (("known",), [0, True], "known are not all below 2"),
    (("known",), {"0": 1}, "known are not all below 2"),
    (("memory", "columns", "y"), lambda t: t - 1, "memory.columns.y are not all below 2"),
    (("memory", "columns", "split"), lambda t: t + 9, "memory.columns.split are not all below 3"),
    (("memory", "columns", "x"), lambda t: t[..., 1:], "pixels is 4"),
    (("memory", "columns", "x"), None, "memory has no column x"),
    (("memory", "capacity"), 10, "memory.capacity is 10"),
    (("memory", "floor"), {"cat": 1}, "memory.floor"),
    (("inference", "names"), ["dog", "cat"], "inference.names is"),
    (("inference", "image_size"), 5, "inference.image_size is 5"),
    (("inference", "temperature"), 2.0, "inference.temperature is 2.0"),
    (("inference_scores", "members", 0, "weight"), lambda t: t * math.inf, "holds NaN or infinity"),
    (("inference_scores", "members", 0, "weight"), lambda t: t[:1], "where classes is 2"),
    (("inference_scores", "members", 0, "weight"), lambda t: t.double(), "float64 .* should be float32"),
    (("inference_scores", "weights"), [], "each member needs a weight"),
    (("inference_scores", "members"), [], "members: .*at least 1"),
    (("llf", "w"), lambda t: t / 0, "llf.w holds NaN or infinity"),
    (("head", "weight"), lambda t: t[:1], "head.weight has 1 rows for 2 classes"),
    (("head", "weight"), lambda t: torch.cat([t, t]), "head.weight has 4 rows for 2 classes"),
    (("head", "weight"), None, "head.weight is not a matrix"),
    (("head", "steps"), [math.nan], "head.steps.0 is not a number"),
]


@pytest.mark.parametrize(("keys", "value", "words"), WRONG, ids=[words for _, _, words in WRONG])
def test_the_first_thing_that_is_wrong_in_a_state_is_named(keys: tuple[Any, ...], value: Any, words: str) -> None:
    state = copy.deepcopy(model(2))
    at(*keys)(state, value)
    with pytest.raises(ValueError, match=words):
        check_state(state, info(2))


def test_thresholds_are_as_many_as_scores() -> None:
    state = copy.deepcopy(model(2))
    for part in ("app", "inference"):
        state[part]["thresholds"] = [1.0, 2.0]
    with pytest.raises(ValueError, match="2 thresholds for 1 out-of-distribution scores"):
        check_state(state, info(2))


@pytest.mark.parametrize(
    "sizes",
    [
        {"factor": (5,), "means": (2, 3), "centre": (3,)},
        {"factor": (6,), "means": (2, 4), "centre": (3,)},
        {"factor": (6,), "means": (0, 3), "centre": (3,)},
        {"factor": (10,), "means": (2, 4), "centre": (4,)},
    ],
)
def test_a_whitening_of_other_features_is_refused(sizes: dict[str, tuple[int, ...]]) -> None:
    scores = copy.deepcopy(model(2)["inference_scores"])
    scores["members"][0]["whitening"] = {name: torch.ones(size) for name, size in sizes.items()}
    with pytest.raises(ValueError, match="not those of . features|have other features"):
        validate_part("inference_scores", scores, {"classes": 2})


def test_a_whitening_that_divides_by_zero_is_refused() -> None:
    scores = copy.deepcopy(model(2)["inference_scores"])
    whitening = {"factor": torch.ones(6), "means": torch.ones(2, 3), "centre": torch.ones(3)}
    scores["members"][0]["whitening"] = whitening
    validate_part("inference_scores", scores, {"classes": 2})
    whitening["factor"][5] = 0.0  # the last entry of the diagonal
    with pytest.raises(ValueError, match="its factor is not that of a covariance"):
        validate_part("inference_scores", scores, {"classes": 2})


def test_negative_variances_are_refused() -> None:
    with pytest.raises(ValueError, match="csf.1.running_var holds negative variances"):
        check_tree({"1.running_var": torch.tensor([-1.0])}, "csf")


def test_learners_own_parts_are_compared_with_a_blank_model() -> None:
    blank: State = {"csf": {"w": torch.ones(2, 3)}, "head": {"weight": torch.ones(0, 3)}}
    blank |= {"loop": {"section": ""}, "momentum": {}}
    good = {**blank, "head": {"weight": torch.ones(5, 3)}}
    check_learner(good, blank)
    for name, part in (
        ("csf", {}),
        ("csf", {"w": torch.ones(2, 3), "v": 1}),
        ("csf", {"w": torch.ones(2, 3).double()}),
        ("head", {"weight": torch.ones(5, 4)}),
        ("head", {"weight": torch.ones(3)}),
        ("head", {"weight": [1.0]}),
        ("head", None),
        ("loop", {"section": "II"}),
        ("momentum", {"head.weight": torch.ones(5, 3)}),
        ("momentum", None),
    ):
        with pytest.raises(CorruptState):
            check_learner({**good, name: part}, blank)


def test_what_was_none_may_be_anything_and_an_empty_dict_may_grow() -> None:
    check_structure({"floor": {"a": 1}, "stds": [1.0]}, {"floor": {}, "stds": None})


def test_the_state_of_a_lesson_under_way_may_have_momentum_and_a_position() -> None:
    blank = {key: part for key, part in model(1).items() if not key.startswith("inference")}
    blank |= {"head": {"weight": torch.ones(0, 3)}, "loop": {"section": ""}}
    state = blank | {"momentum": {"head.weight": torch.ones(2, 3)}, "loop": {"section": "II"}}
    check_checkpoint(state, blank)
    for name, part in (("momentum", {"w": torch.tensor([math.nan])}), ("taught", {}), ("loop", {"section": 3})):
        with pytest.raises(CorruptState):
            check_checkpoint(state | {name: part}, blank)
    with pytest.raises(CorruptState, match="there is no part app"):
        check_checkpoint({key: part for key, part in state.items() if key != "app"}, blank)
