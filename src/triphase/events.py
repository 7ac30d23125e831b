"""Progress as events: dicts such as {"event": "decode", "done": 3, "total": 10}."""

from collections.abc import Callable
from typing import Any

Event = dict[str, Any]
OnEvent = Callable[[Event], object]  # called with each event; what it returns is ignored


def ignore_event(event: Event) -> None:
    """An `OnEvent` for callers that report nothing."""
