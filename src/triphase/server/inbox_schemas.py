"""Schemas of requests and responses about the inbox."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from triphase.server.schemas import DRAFT_NAME, MAX_IDS, Body, Label, PhotoId


class InboxItem(BaseModel):
    """A photo that waits for a label, what the model said when it came, and what it thinks now."""

    id: str
    name: str
    time: str
    best: str
    probability: float
    known: bool
    group: int
    doubt: float
    reason: str
    thumbnail: str


class InboxList(BaseModel):
    """Photos in the order in which labels would teach most; those that look alike have the same group."""

    photos: list[InboxItem]
    total: int
    bytes: int
    max_bytes: int


class LabelPhotos(Body):
    """Photos of the inbox, the class that they show, and the draft that they go into."""

    photos: list[PhotoId] = Field(min_length=1, max_length=MAX_IDS)
    label: Label
    draft: Annotated[str, StringConstraints(pattern=DRAFT_NAME)] = "next"
