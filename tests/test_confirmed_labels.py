"""What a person has called right is remembered."""

from pathlib import Path

import pytest

from triphase.app.confirmed_labels import ConfirmedLabels


def test_it_is_remembered_under_the_name_of_now(tmp_path: Path) -> None:
    file = tmp_path / "serve" / "confirmed.json"
    ConfirmedLabels(file).add({5: "1-0", -7: "1-1"})
    again = ConfirmedLabels(file)
    assert again.by_name({"tiger": "1-0", "dog": "1-1"}) == {5: "tiger", -7: "dog"}
    assert again.by_name({"dog": "1-1"}) == {-7: "dog"}, "a class that is forgotten confirms nothing"


def test_nothing_stays_of_photos_that_are_no_longer_taught(tmp_path: Path) -> None:
    file = tmp_path / "confirmed.json"
    confirmed = ConfirmedLabels(file)
    confirmed.add({5: "1-0", 6: "1-0"})
    confirmed.keep_only({6, 9})
    assert ConfirmedLabels(file).by_name({"cat": "1-0"}) == {6: "cat"}
    assert "0000000000000005" not in file.read_text()


@pytest.mark.parametrize("content", ["", "[]", '{"x": 1}', "{", "null", "\0"])
def test_a_damaged_file_counts_as_empty(tmp_path: Path, content: str) -> None:
    file = tmp_path / "confirmed.json"
    file.write_text(content)
    confirmed = ConfirmedLabels(file)
    assert confirmed.by_name({"cat": "1-0"}) == {}
    confirmed.add({5: "1-0"})
    assert ConfirmedLabels(file).by_name({"cat": "1-0"}) == {5: "cat"}
