"""Names of classes: what is kept, and what is refused."""

import unicodedata

import pytest

from triphase.app.class_names import class_name
from triphase.errors import InvalidValue


@pytest.mark.parametrize(
    "name", ["cat", "猫", "🐕 à la carte", "می\u200cخواهم", "👩\u200d🔬", "a\u3000b", "-1", "None"]
)
def test_names_of_any_script_stay_as_they_are(name: str) -> None:
    assert class_name(name) == name


def test_accents_are_kept_with_their_letters() -> None:
    assert class_name(unicodedata.normalize("NFD", "café")) == unicodedata.normalize("NFC", "café")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "nothing of it can be seen"),
        (" \u200b", "nothing of it can be seen"),
        ("caf\udce9", "not valid UTF-8"),
        ("a\nb", "cannot be printed"),
        ("\x1b[31mred", "cannot be printed"),
        ("a\u2028b", "cannot be printed"),
        ("a/b", "no folder can have a /"),
        ("Unknown ", "the answer for images unlike any class"),
        ("ｕｎｋｎｏｗｎ", "the answer for images unlike any class"),
    ],
)
def test_what_cannot_be_a_name_is_refused_in_a_sentence_that_can_be_printed(text: str, reason: str) -> None:
    with pytest.raises(InvalidValue, match=f"^A class cannot be called .*{reason}") as refused:
        class_name(text)
    assert str(refused.value).encode() and "\n" not in str(refused.value)
