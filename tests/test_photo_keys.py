"""Ids as text and back."""

import pytest

from triphase.app.photo_keys import photo_id, photo_key
from triphase.errors import InvalidValue


@pytest.mark.parametrize("id_", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_an_id_comes_back_from_its_key(id_: int) -> None:
    key = photo_key(id_)
    assert len(key) == 16 and photo_id(key) == id_


@pytest.mark.parametrize("key", ["", "12", "g" * 16, "A" * 16, "../../../../etc/", "٣" * 16, "0" * 17])
def test_what_is_no_key_gets_a_sentence(key: str) -> None:
    with pytest.raises(InvalidValue, match="16 hexadecimal digits"):
        photo_id(key)
