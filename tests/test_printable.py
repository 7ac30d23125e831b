"""Text for terminals: what cannot be seen is escaped, everything else stays."""

import contextlib
import io
import json
import os
import shutil
import sys
import unicodedata
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from triphase.cli import main
from triphase.cli.printing import print_rows
from triphase.errors import BadData, CannotWrite, TriphaseWarning, few
from triphase.printable import HIDDEN_CATEGORIES, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),  # an escape sequence in one character
        ("two\r\nlines\u2028and more\u2029", "two\\r\\nlines\\u2028and more\\u2029"),
        ("gpj.\u202etac", "gpj.\\u202etac"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("caf\udce9 \ud800", "caf\\xe9 \\ud800"),
        ("a\u200db", "a\\u200db"),
        ("flag \U000e0067", "flag \\U000e0067"),
    ],
)
def test_what_would_change_the_terminal_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    "text", ["cat", "a [b] \\n", "猫 à\u00a0la", "می\u200cخواهم", "👩🏽\u200d🔬", "\u0601\u0661", "\U0001fae9"]
)
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@given(st.text(st.characters(exclude_categories=())))
def test_no_hidden_character_is_left_and_twice_is_the_same_as_once(text: str) -> None:
    shown = printable(text)
    shown.encode()  # as printing does
    assert all(unicodedata.category(sign) not in ("Cc", "Cs", "Zl", "Zp") for sign in shown)
    assert printable(shown) == shown


@pytest.mark.parametrize("kind", [BadData, CannotWrite, TriphaseWarning])
def test_errors_and_warnings_are_sentences_that_can_be_printed(kind: type[Exception]) -> None:
    assert str(kind("There is no file \x1b[2J\udcff.")) == "There is no file \\x1b[2J\\xff."


def test_a_few_names_can_be_printed() -> None:
    assert few(["a\nb", "c"]) == "a\\nb, c"


# Through the command line

NASTY = "r\x1b[2J\x1b]0;owned\x07e\nd\u202e\u200b"
NO_UTF8 = os.fsdecode(b"\xff")
SMALL = ("--backbone", "small_cnn", "--image-size", "8", "--memory", "60")


class Answer(NamedTuple):
    status: int
    out: str
    err: str


def triphase(*arguments: object) -> Answer:
    """Call the command in this process; whatever it prints is safe for a terminal."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["triphase", *map(str, arguments)]),
        patch.dict(os.environ, {"COLUMNS": "300"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        main()
    answer = Answer(int(end.value.code or 0), out.getvalue(), err.getvalue())
    for text in answer[1:]:
        hidden = [sign for sign in text if sign != "\n" and unicodedata.category(sign) in HIDDEN_CATEGORIES]
        assert not hidden, f"{arguments[0]} printed {hidden} in {text!r}"
    assert "Traceback" not in answer.err
    return answer


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and photos of it; a class, its photos and both folders have names that attack a terminal."""
    root = tmp_path_factory.mktemp("nasty") / ("wor\x1b[8mld" + os.fsdecode(b"caf\xe9"))
    for name, grey in ((NASTY, 30), ("white", 200)):
        (root / "photos" / name).mkdir(parents=True)
        for i in range(4):
            pixels = np.random.default_rng(grey + i).integers(grey, grey + 50, (9, 9, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / "photos" / name / f"\x1b[31m{i}\n\u202e{NO_UTF8}.png")
    with patch("triphase.app.class_names._fault", lambda name: None):  # as if the name were allowed
        answer = triphase("teach", root / "model", root / "photos", *SMALL)
    assert answer.status == 0 and "r\\x1b[2J\\x1b]0;owned\\x07e\\nd\\u202e\\u200b" in answer.out
    return root / "model", root / "photos"


@patch("triphase.app.class_names._fault", lambda name: None)
def test_no_answer_about_a_nasty_name_is_raw(nasty: tuple[Path, Path], tmp_path: Path) -> None:
    model, photos = tmp_path / "model\x1b[8m", nasty[1]
    shutil.copytree(nasty[0], model)
    photo = sorted((photos / NASTY).iterdir())[0]
    assert "owned" in triphase("evaluate", model, photos).out
    assert "All 8 photos" in triphase("teach", model, photos).out
    (shown,) = triphase("teach", tmp_path / "new", photos, "--dry-run", *SMALL).out.splitlines()[1:2]
    assert "owned" in shown
    assert "\\x1b[31m0\\n\\u202e\\xff.png" in triphase("predict", model, photo).out
    (answer,) = json.loads(triphase("predict", model, photo, "--json").out)["answers"]
    assert answer["file"] == str(photo)
    for command in ("classes", "history", "status"):
        assert "owned" in triphase(command, model).out
    assert "owned" in triphase("rename", model, NASTY, "red").out
    assert "owned" in triphase("history", model).out
    assert "owned" in triphase("undo", model).out
    assert triphase("unteach", model, photo).status == 0
    assert "owned" in triphase("forget", model, NASTY).out


@pytest.mark.parametrize("command", ["predict", "evaluate", "teach", "unteach"])
def test_a_place_with_a_nasty_name_is_refused_in_a_printable_sentence(
    nasty: tuple[Path, Path], tmp_path: Path, command: str
) -> None:
    model, _ = nasty
    missing, broken = tmp_path / NASTY, tmp_path / "photos" / "class" / f"{NASTY}.png"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no image")
    for place in (missing, broken, broken.parent, broken.parent.parent):
        assert triphase(command, model, place).status in (1, 2)
    assert triphase(command, model, place, "--skip-bad").status in (1, 2)


def test_a_model_with_a_nasty_name_is_refused_in_a_printable_sentence(tmp_path: Path) -> None:
    place = tmp_path / NASTY
    for command in ("predict", "evaluate", "teach", "unteach", "forget"):
        assert triphase(command, place, place).status == 1
    for command in ("status", "history", "classes", "undo"):
        assert triphase(command, place).status == 1
    place.mkdir()
    (place / f"fi{NASTY}le").write_text("")
    assert triphase("rename", place, NASTY, NASTY).status == 1
    assert triphase("data", "--data", place).status == 0
    assert triphase("data", "--data", tmp_path / f"no{NASTY}").status == 1
    assert triphase("bench", "run", "folder:2/1-1", "--data", place, "--out", tmp_path / f"o{NASTY}").status == 1
    assert triphase("bench", "report", place).status == 1


def test_wrong_usage_with_a_nasty_word_is_refused_in_a_printable_sentence(tmp_path: Path) -> None:
    for words in (
        ["status", tmp_path, NASTY],
        ["status", tmp_path, f"--{NASTY}"],
        [NASTY],
        ["bench", NASTY],
        ["teach", tmp_path, tmp_path, "--keep", NASTY],
    ):
        assert triphase(*words).status == 2


@pytest.mark.parametrize(
    "words", [["teach", "", "photos"], ["status", ""], ["bench", "run", "digits-5", "--out", ""]]
)
def test_an_empty_argument_is_wrong_usage(words: list[str]) -> None:
    answer = triphase(*words)
    assert answer.status == 2 and "An argument is empty" in answer.err


def test_columns_stand_below_each_other_whatever_a_name_is_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([["kiwi", "1"], ["\u30ad\u30a6\u30a4", "2"], ["e\u0301te", "3"]])
    assert capsys.readouterr().out.splitlines() == ["kiwi    1", "\u30ad\u30a6\u30a4  2", "e\u0301te     3"]
