"""Schemas of requests and responses."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

DRAFT_NAME = r"^[A-Za-z0-9_-]{1,64}$"
PHOTO_ID = r"^[0-9a-f]{16}$"
MAX_IDS = 20_000

PhotoId = Annotated[str, StringConstraints(pattern=PHOTO_ID)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class Body(BaseModel):
    """What a client sends: the fields that are named here and no others."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Problem(BaseModel):
    """Why a request was refused (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    photos: list[str] | None = None


# --- models ---------------------------------------------------------------------------------------------------


class Accuracy(BaseModel):
    """An accuracy on n held-out photos, with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int


class ClassDescription(BaseModel):
    """A class, what was taught of it, and how well it is recognised."""

    name: str
    taught: int
    stored: int
    exemplars: int
    accuracy: Accuracy | None
    thumbnails: list[str]


class Classes(BaseModel):
    """The classes of a model, in order of arrival."""

    classes: list[ClassDescription]


class ModelSummary(BaseModel):
    """A model in a list."""

    name: str
    version: int | None
    classes: int
    lesson: int | None


class Models(BaseModel):
    """All models that are served, and whether others can be made."""

    models: list[ModelSummary]
    can_add: bool


class MemoryUse(BaseModel):
    """How much of the replay memory is used."""

    samples: int
    capacity: int
    bytes: int
    exemplars: int
    alike: int = 0  # exemplars that look like a training photo: accuracy on them says little about new photos


class ModelDescription(BaseModel):
    """What a model is and knows."""

    name: str
    version: int | None
    created: str | None
    lessons: int
    taught: int
    classes: list[ClassDescription]
    accuracy: Accuracy | None
    backbone: str | None
    image_size: int | None
    learner: str | None
    replay: str | None
    memory: MemoryUse | None
    unknown: bool
    pending: bool
    lesson: int | None
    inbox: int
    bytes: int


class NewModel(Body):
    """The name of a model that is yet to be taught."""

    name: Label


class Versions(BaseModel):
    """What happened to a model, oldest first, and which version is in use."""

    version: int | None
    undo_to: int | None = Field(description="The version that undo goes back to; null if there is none")
    kept: list[int]
    events: list[dict[str, Any]]


class Changed(BaseModel):
    """The version in use after a change."""

    version: int
    classes: list[str]
    images: int | None = None


class Rename(Body):
    """The name of a class now, and the one that it gets."""

    old: Label
    new: Label


class Forget(Body):
    """A class to forget, in the version in use or in all."""

    label: Label
    everywhere: bool = False


# --- predict --------------------------------------------------------------------------------------------------


class Probability(BaseModel):
    """A class and how probable it is."""

    label: str
    probability: float


class Neighbour(BaseModel):
    """A taught photo that looks like another one; similarity is 1 for the same photo."""

    id: str
    label: str
    similarity: float
    held_out: bool
    thumbnail: str | None = None


class PhotoAnswer(BaseModel):
    """What the model says about one photo, or why it cannot be read."""

    name: str
    id: str | None = None
    label: str | None = None
    known: bool | None = None
    best: str | None = None
    probability: float | None = None
    top: list[Probability] = []
    nearest: list[Neighbour] = []
    group: int | None = None
    error: str | None = None


class WatchedAnswer(PhotoAnswer):
    """What the model said about a photo that appeared in the watched folder."""

    version: int
    time: str


class Watched(BaseModel):
    """Answers about photos of the watched folder, newest first."""

    answers: list[WatchedAnswer]


class Answers(BaseModel):
    """What one version of the model says about photos."""

    version: int
    answers: list[PhotoAnswer]


# --- drafts ---------------------------------------------------------------------------------------------------


class DraftPhoto(BaseModel):
    """A photo in a draft."""

    id: str
    label: str
    bytes: int


class Draft(BaseModel):
    """Photos for a lesson, oldest first."""

    name: str
    photos: list[DraftPhoto]
    bytes: int


class DraftSummary(BaseModel):
    """A draft in a list."""

    name: str
    photos: int
    bytes: int


class DraftList(BaseModel):
    """All drafts of a model."""

    drafts: list[DraftSummary]


class UploadedPhoto(BaseModel):
    """A photo that was uploaded."""

    id: str
    label: str
    name: str


class UploadError(BaseModel):
    """A file that was not taken, and why."""

    name: str
    error: str


class Uploaded(BaseModel):
    """What became of an upload."""

    added: list[UploadedPhoto]
    moved: list[UploadedPhoto]
    repeated: int
    errors: list[UploadError]


class MovePhotos(Body):
    """Photos of a draft that belong to another class."""

    photos: list[PhotoId] = Field(max_length=MAX_IDS)
    label: Label


class PhotoIds(Body):
    """Photos by id."""

    photos: list[PhotoId] = Field(max_length=MAX_IDS)
