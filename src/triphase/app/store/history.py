"""The history of a model: one event per line, each with its checksum. The newest event is in CURRENT, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from triphase import state as files
from triphase.app.store.checksums import verify_checksum, with_checksum
from triphase.app.store.schema import validate_event
from triphase.directory_lock import DirectoryLock
from triphase.errors import CorruptState, InvalidValue

Event = dict[str, Any]


class History:
    """The file in which events are recorded.

    A writer that dies while it appends leaves the beginning of a line. That is no damage: its event is in CURRENT.
    Any other line that cannot be verified is damage, which `read` reports.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self, newest: Event | None) -> list[Event]:
        """All events, oldest first; the last one is `newest`, the event of CURRENT, even before it is recorded."""
        lines = self._lines(newest)
        if None in lines:
            raise CorruptState(self._describe_damage(lines))
        events = [event for event in lines if event is not None]
        return events if newest is None or _recorded(newest, events) else [*events, newest]

    def verified(self, newest: Event | None) -> list[Event]:
        """The recorded events that can be verified."""
        return [event for event in self._lines(newest) if event is not None]

    def damage(self, newest: Event | None) -> str | None:
        """A sentence that names the first line that cannot be verified, or None."""
        lines = self._lines(newest)
        return self._describe_damage(lines) if None in lines else None

    def append(self, newest: Event | None, lock: DirectoryLock) -> None:
        """Record the event of CURRENT, if it is not recorded yet; lines that are damaged stay as they are."""
        if newest is None or _recorded(newest, self._lines(newest)):
            return
        line, content = with_checksum(newest) + b"\n", self._content()
        torn = content[content.rfind(b"\n") + 1 :]
        if torn and line.startswith(torn):
            lock.append(self.file, line, len(content) - len(torn))
        else:
            lock.append(self.file, b"\n" * bool(torn) + line, len(content))

    def write(self, events: Iterable[Event], lock: DirectoryLock) -> None:
        """Replace the whole history."""
        blob = b"".join(with_checksum(event) + b"\n" for event in events)
        lock.write(self.file, blob)

    def _lines(self, newest: Event | None) -> list[Event | None]:
        """The event of each line, or None for one that cannot be verified."""
        *lines, torn = self._content().split(b"\n")
        if torn and not (newest is not None and with_checksum(newest).startswith(torn)):
            lines.append(torn)
        return [self._event(line) for line in lines]

    def _describe_damage(self, lines: list[Event | None]) -> str:
        return (
            f"{self.file}: line {1 + lines.index(None)} is damaged; restore the file from a copy of "
            f"{self.file.parent}, or remove that line and with it what it says."
        )

    def _event(self, line: bytes) -> Event | None:
        try:
            return validate_event(verify_checksum(line, self.file))
        except (KeyError, RecursionError, TypeError, ValueError):
            return None

    def _content(self) -> bytes:
        try:
            return files.read_file(self.file, follow_links=False)
        except FileNotFoundError:
            return b""
        except CorruptState as error:
            raise CorruptState(
                f"{self.file} is not a regular file; restore it from a copy of {self.file.parent}."
            ) from error
        except OSError as error:
            raise CorruptState(f"{self.file} cannot be read ({error.strerror}); check its permissions.") from error


def new_event(event: Mapping[str, Any], number: int) -> Event:
    """An event that may be recorded for a version, with the time of now."""
    try:
        return validate_event({**event, "version": number, "time": now()})
    except ValueError as error:
        raise InvalidValue(f"This event cannot be recorded ({error}); nothing was changed.") from error


def now() -> str:
    """The time as it is recorded."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def event_key(event: Event) -> tuple[int, str]:
    """What identifies an event, before and after the history was rewritten."""
    return event["version"], event["time"]


def _recorded(event: Event, lines: Iterable[Event | None]) -> bool:
    return event_key(event) in {event_key(line) for line in lines if line is not None}
