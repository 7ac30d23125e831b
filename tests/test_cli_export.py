"""triphase export: what people and programs are told."""

from pathlib import Path

import onnx
import pytest

from lessons import World, done, triphase


def test_people_are_told_what_was_written_and_how_it_was_checked(original: World, tmp_path: Path) -> None:
    answer = done("export", original.base, tmp_path / "model.onnx")
    first, second = answer.out.splitlines()
    assert first.startswith(f"Wrote {tmp_path / 'model.onnx'} (") and first.endswith(
        "3 classes, photos of 8 x 8 pixels."
    )
    assert "answered like the model on 24 generated images and the stored features of 30 photos" in second
    assert "Comparing its answers" in answer.err
    assert onnx.load(tmp_path / "model.onnx").graph.input[0].name == "pixels"


def test_programs_get_one_document(original: World, tmp_path: Path) -> None:
    answer = done("export", original.base, tmp_path / "a.onnx", "--photos", original.test, "--quantize", "--json")
    document = answer.document()
    assert answer.err == "" and document["model"] == str(original.base) and document["file"].endswith("a.onnx")
    assert document["parity"]["n"] == 20 and document["parity"]["difference"] <= 1e-4
    assert document["quantization"]["same_class"] <= 1 and document["quantization"]["labelled"] == 7


def test_what_8_bit_integers_lose_is_a_table(original: World, tmp_path: Path) -> None:
    out = done("export", original.base, tmp_path / "a.onnx", "--photos", original.test, "--quantize").out
    assert "Before the change to 8 bits, it answered like the model on 20 photos" in out
    for row in ("size", "speed here", "accuracy on", "same class", "same unknown flag"):
        assert row in out
    assert "Calibrated on 10 photos, measured on 10 photos (others)." in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["model.onnx", "--quantize"], "give a folder with --photos"),
        (["model.onnx", "--photos", "nowhere"], "There is no folder nowhere"),
        (["model.bin"], "does not end in .onnx"),
        (["model.onnx", "--device", "cuda:9"], "There is no device cuda:9"),
    ],
    ids=["int8 without photos", "no such folder", "another suffix", "no such device"],
)
def test_bad_input_gets_a_sentence(
    original: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = triphase("export", original.base, *arguments)
    assert answer.status == 1 and sentence in answer.err and answer.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_says_what_comes_in_and_out() -> None:
    out = " ".join(done("export", "--help").out.split())
    for words in ("FILE.onnx", "--photos", "--quantize", "uint8", "probabilities", "onnx_predict.py"):
        assert words in out
