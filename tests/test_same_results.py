"""benchmarks/same_results.py sees every bit that differs, and tells what is explained from what is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
try:
    import generated_photos
    import neutral_state
    import same_results
finally:
    sys.path.pop(0)

one = torch.ones(3)
almost = torch.tensor([1.0, 1.0, 1.0 + 2**-23])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (one, almost),
        (one, one.double()),
        (one, torch.ones(1, 3)),
        (torch.zeros(1), -torch.zeros(1)),
        (torch.arange(3), torch.tensor([0, 1, 3])),
        (0.1, 0.1 + 2**-56),
        (1, True),
        (None, 0.0),
    ],
)
def test_a_difference_of_one_bit_type_or_shape_is_seen(old: neutral_state.Leaf, new: neutral_state.Leaf) -> None:
    assert [found.name for found in neutral_state.compare({"x": old}, {"x": new})] == ["x"]


def test_equal_values_are_no_difference_even_where_they_are_not_a_number() -> None:
    values: dict[str, neutral_state.Leaf] = {"a": torch.tensor([1.0, torch.nan]), "b": float("nan"), "c": "cat"}
    assert neutral_state.compare(values, {**values, "a": values["a"].clone(), "added": 1}) == []  # type: ignore[union-attr]


def test_a_value_that_is_missing_is_a_difference() -> None:
    assert neutral_state.compare({"a": one}, {}) == [neutral_state.Difference("a", "missing")]


def test_a_renamed_value_is_found_under_its_new_name() -> None:
    old = neutral_state.renamed({"version 1/course/step": 3, "version 1/llf/x": one}, same_results.RENAMED)
    assert list(old) == ["version 1/loop/step", "version 1/llf/x"]


def test_a_state_is_read_with_the_tree_of_its_header(tmp_path: Path) -> None:
    tree = '{"part": {"known": [0, 1], "head": {"weight": {"$tensor": "w"}}}}'
    save_file({"w": one}, tmp_path / "a.safetensors", {"tree": tree})
    values = dict(neutral_state.flat(neutral_state.read_state(tmp_path / "a.safetensors")["part"]))
    assert torch.equal(values.pop("head/weight"), one)  # type: ignore[arg-type]
    assert values == {"known/0": 0, "known/1": 1}


def test_only_what_a_listed_defect_explains_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    explained = same_results.Explanation("teach: version 2/*", "The recipe counted too much.", relative=1e-6)
    monkeypatch.setattr(same_results, "EXPLAINED", [explained])
    experiment = same_results.Experiment("teach", [])
    result = same_results.Result
    old, new = result({"version 2/x": one, "version 1/x": one}), result({"version 2/x": almost, "version 1/x": one})
    line, fine = same_results.row(experiment, old, new)
    assert fine and "1 differ by 1e-07 at most (a)" in line
    new.saved["version 2/x"] = one + 1e-4
    assert not same_results.row(experiment, old, new)[1], "it differs by more than the defect explains"
    new.saved |= {"version 2/x": one, "version 1/x": almost}
    assert not same_results.row(experiment, old, new)[1], "another value differs"


def test_generated_photos_are_always_the_same() -> None:
    photo = generated_photos.draw("apple", 3)
    assert photo.tobytes() == generated_photos.draw("apple", 3).tobytes()
    assert photo.tobytes() != generated_photos.draw("apple", 4).tobytes() and min(photo.size) > 128
