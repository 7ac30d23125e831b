"""Items are prepared in advance, in order."""

import pytest

from triphase.data.prefetch import prefetch
from triphase.errors import InvalidValue


def test_items_arrive_in_order_and_so_do_failures() -> None:
    assert list(prefetch(range(7), lambda i: i * i)) == [i * i for i in range(7)]

    def fail(i: int) -> int:
        if i == 2:
            raise InvalidValue("no third one")
        return i

    with pytest.raises(InvalidValue, match="no third one"):
        list(prefetch(range(5), fail))
