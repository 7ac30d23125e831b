"""Schemas of requests and responses about taught photos."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from triphase.server.schemas import MAX_IDS, Accuracy, Body, Label, PhotoId


class Confusion(BaseModel):
    """Held-out photos of one class that are taken for another."""

    label: str
    taken_for: str
    photos: list[str]
    n: int


class ReliabilityBin(BaseModel):
    """Held-out photos with a probability in one range."""

    low: float
    high: float
    probability: float | None
    accuracy: Accuracy | None


class HeldOutReport(BaseModel):
    """What the model says about its held-out photos; rows and columns of the matrix are the classes."""

    version: int
    classes: list[str]
    accuracy: Accuracy | None
    matrix: list[list[int]]
    confusions: list[Confusion]
    reliability: list[ReliabilityBin]
    calibration_error: float | None


class ConfusedWith(BaseModel):
    """Another class, and how many photos are taken for it."""

    label: str
    photos: int


class ClassAdvice(BaseModel):
    """Whether enough was taught of a class, and what would help."""

    name: str
    taught: int
    held_out: Accuracy | None
    left_out: Accuracy | None
    together: Accuracy | None
    confused_with: list[ConfusedWith]
    gain: float | None
    status: Literal["unmeasured", "unsure", "confused", "weak", "good"]
    photos_needed: int | None
    advice: str


class ClassAdviceList(BaseModel):
    """Each class, in order of arrival."""

    version: int
    classes: list[ClassAdvice]


class Suspect(BaseModel):
    """A taught photo that looks like another class than the one it was taught as."""

    id: str
    label: str
    looks_like: str
    sure: float
    own: float
    thumbnail: str | None


class Suspects(BaseModel):
    """Taught photos whose label is probably wrong, the most probable mistakes first."""

    version: int
    suspects: list[Suspect]


class TaughtPhoto(BaseModel):
    """A taught photo and where its thumbnail is found, if there is one."""

    id: str
    thumbnail: str | None


class TaughtPhotoList(BaseModel):
    """Some of the photos of a class, the newest first, and how many there are."""

    version: int
    total: int
    photos: list[TaughtPhoto]


class MoveTaught(Body):
    """Taught photos that belong to another class."""

    photos: list[PhotoId] = Field(min_length=1, max_length=MAX_IDS)
    label: Label


class TaughtPhotos(Body):
    """Taught photos by id."""

    photos: list[PhotoId] = Field(min_length=1, max_length=MAX_IDS)
