"""What may be published: invalid documents, events and states are refused before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, TypeVar

from triphase.app.store.history import Event
from triphase.app.store.schema import Document, validate, validate_event
from triphase.app.store.state_checks import check_state
from triphase.errors import InvalidValue

D = TypeVar("D", bound=Document)


def checked(kind: type[D], document: Mapping[str, Any]) -> D:
    """A document that may be written."""
    try:
        return validate(kind, document)
    except ValueError as error:
        raise InvalidValue(f"This model cannot be published ({error}); nothing was changed.") from error


def checked_event(event: Mapping[str, Any], number: int) -> Event:
    """An event that may be recorded for a version, with the time of now."""
    try:
        return validate_event({**event, "version": number, "time": now()})
    except ValueError as error:
        raise InvalidValue(f"This event cannot be recorded ({error}); nothing was changed.") from error


def check_publishable(state: Mapping[str, Any], info: Mapping[str, Any]) -> None:
    """Refuse a state that could not be loaded again."""
    try:
        check_state({name: _as_loaded(part) for name, part in state.items()}, info)
    except ValueError as error:
        raise InvalidValue(f"This model cannot be published ({error}); nothing was changed.") from error


def _as_loaded(value: Any) -> Any:
    """A value as it comes back from disk: keys are text, and tuples are lists."""
    if isinstance(value, Mapping):
        return {str(key): _as_loaded(item) for key, item in value.items()}
    return [_as_loaded(item) for item in value] if isinstance(value, list | tuple) else value


def now() -> str:
    """The time as it is recorded."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
