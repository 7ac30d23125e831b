"""torchvision can be imported, whether or not its operators fit this build of torch."""

from importlib import import_module
from importlib.util import find_spec

import pytest

from triphase.torchvision_operators import declare_torchvision_operators

pytestmark = pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")


def test_torchvision_can_be_imported_after_its_operators_are_declared() -> None:
    assert declare_torchvision_operators() is declare_torchvision_operators()
    assert import_module("torchvision").__version__[0].isdigit()
