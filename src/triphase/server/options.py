"""The options of a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from triphase.server.limits import Limits


@dataclass(frozen=True)
class ServeOptions:
    """Which models are served, and which features are enabled."""

    model: Path | None = None
    models: Path | None = None  # a folder of them
    photos: Path | None = None  # lessons may be made from folders below it
    watch: Path | None = None  # new photos in it are answered
    label_studio: str | None = None  # the only origin that photos are fetched from
    thumbnails: bool = True  # keep small pictures of what is taught
    keep_unsure: int = 0  # bytes of photos that answers were unsure of
    device: str = "cpu"  # that answers and lessons compute on
    limits: Limits = field(default_factory=Limits)
