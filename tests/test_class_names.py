"""Names of classes: what is kept, and what is refused."""

import unicodedata
from pathlib import Path

import numpy as np
import pytest

from triphase import ContinualClassifier
from triphase.app import manage
from triphase.app.class_names import class_name, stored_class_name
from triphase.app.scan import scan
from triphase.errors import BadData, InvalidValue


@pytest.mark.parametrize(
    "name",
    [
        *("cat", "猫", "🐕 à la carte", "می\u200cخواهم", "👩\u200d🔬", "❤\ufe0f\u200d🔥", "a\u3000b", "-1", "None"),
        *("\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "a.b", "ü" * 127),
    ],
)
def test_names_of_any_script_stay_as_they_are(name: str) -> None:
    assert class_name(name) == name


def test_a_class_of_an_older_model_may_end_with_a_space() -> None:
    assert stored_class_name("cat ") == "cat "


def test_accents_are_kept_with_their_letters() -> None:
    assert class_name(unicodedata.normalize("NFD", "café")) == unicodedata.normalize("NFC", "café")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "nothing of it can be seen"),
        (" \u200b", "nothing of it can be seen"),
        ("\u3164", "nothing of it can be seen"),
        ("caf\udce9", "not valid UTF-8"),
        ("a\nb", "characters that cannot be seen"),
        ("\x1b[31mred", "characters that cannot be seen"),
        ("a\u2028b", "characters that cannot be seen"),
        *((f"a{sign}b", "characters that cannot be seen") for sign in "\u202a\u202e\u2066\u2069\u061c"),
        *((f"a{sign}b", "characters that cannot be seen") for sign in "\u200b\u2060\ufeff\u200e\u200f\xad"),
        *(
            (text, "characters that cannot be seen")
            for text in ("a\u200db", "猫\u200d", "\u200c猫", "猫\u200d\u200d猫")
        ),
        *((text, "a space before or after it cannot be seen") for text in (" cat", "cat ")),
        ("a/b", "no folder can have a /"),
        (".", "begin with a dot"),
        ("..", "begin with a dot"),
        (".kit", "begin with a dot"),
        ("ü" * 128, "256 bytes in UTF-8, and the name of a folder at most 255"),
        ("Unknown ", "the answer for images unlike any class"),
        ("ｕｎｋｎｏｗｎ", "the answer for images unlike any class"),
    ],
)
def test_what_cannot_be_a_name_is_refused_in_a_sentence_that_can_be_printed(text: str, reason: str) -> None:
    with pytest.raises(InvalidValue, match=f"^A class cannot be called .*{reason}") as refused:
        class_name(text)
    assert str(refused.value).isprintable() and len(str(refused.value)) < 200


@pytest.mark.parametrize("name", [".", "..", "ü" * 128, "gpj.\u202etac", "a\u200bb"])
def test_rename_and_programs_obey_the_rule(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidValue, match="A class cannot be called"):
        manage.rename(tmp_path, "red", name)
    with pytest.raises(InvalidValue, match="A class cannot be called"):
        ContinualClassifier().partial_fit(np.zeros((1, 8, 8, 3), np.uint8), [name])


@pytest.mark.parametrize("name", ["gpj.\u202etac", "a\u200bb", "a\x1bb"])
def test_folders_obey_the_rule_and_the_sentence_says_which(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(
        BadData, match=r"A class cannot be called .* Rename the folder .*, or take it away"
    ) as refused:
        scan(tmp_path, 8)
    assert str(refused.value).isprintable()
