"""The photos that an exported file is checked on."""

import shutil
from pathlib import Path

import pytest

from lessons import World
from triphase.app.export import export
from triphase.errors import BadData


def test_photos_lie_in_any_folders_and_only_some_of_many_are_taken(
    original: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triphase.app.export_samples.MAX_SAMPLES", 7)
    done_ = export(original.base, tmp_path / "model.onnx", photos=original.test.parent)
    assert (done_.checked_on, done_.parity.n) == ("photos", 7)


def test_a_photo_that_cannot_be_read_is_refused_by_name_or_skipped(original: World, tmp_path: Path) -> None:
    shutil.copytree(original.test, tmp_path / "photos")
    (tmp_path / "photos" / "red" / "broken.jpg").write_bytes(b"\xff\xd8\xff no photo")
    with pytest.raises(BadData, match=r"broken.jpg cannot be read.*--skip-bad"):
        export(original.base, tmp_path / "model.onnx", photos=tmp_path / "photos")
    assert not (tmp_path / "model.onnx").exists()
    done_ = export(original.base, tmp_path / "model.onnx", photos=tmp_path / "photos", skip_bad=True)
    assert done_.parity.n == 20 and len(done_.skipped) == 1 and "broken.jpg" in done_.skipped[0]


def test_a_folder_without_photos_gets_a_sentence(original: World, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.jpg").write_bytes(b"\xff\xd8\xff no photo")
    out = tmp_path / "model.onnx"
    with pytest.raises(BadData, match="empty holds no photo"):
        export(original.base, out, photos=tmp_path / "empty")
    with pytest.raises(BadData, match="There is no folder .*nowhere"):
        export(original.base, out, photos=tmp_path / "nowhere")
    with pytest.raises(BadData, match="No photo in .* can be read"):
        export(original.base, out, photos=tmp_path / "broken", skip_bad=True)
    assert not out.exists()
