"""Schemas of requests and responses about lessons."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints, model_validator

from triphase.app.plan import LessonSettings
from triphase.server.schemas import DRAFT_NAME, Body, DraftPhoto

MAX_MINUTES = 10_080  # a week


class NewModelOptions(Body):
    """How a model is made that does not exist yet."""

    backbone: str | None = None
    image_size: int | None = None
    memory: int | str | None = None
    replay: Literal["raw", "latent", "none"] | None = None
    learner: str | None = None
    seed: int | None = None


class NewLesson(Body):
    """A lesson from a draft, or from a folder below the one that was named when the server was started."""

    draft: Annotated[str, StringConstraints(pattern=DRAFT_NAME)] | None = None
    folder: str | None = Field(default=None, max_length=4096)
    quick: bool = False
    force: bool = False
    skip_bad: bool = False
    max_drop: float = 0.02
    unlabelled: Literal["ignore", "pseudo"] = "ignore"
    options: NewModelOptions = NewModelOptions()

    @model_validator(mode="after")
    def _one_source(self) -> NewLesson:
        if (self.draft is None) == (self.folder is None):
            raise ValueError("give either draft or folder")
        return self

    def settings(self) -> dict[str, Any]:
        """The settings of the lesson, checked."""
        settings = self.model_dump(include={"max_drop", "force", "quick", "skip_bad", "unlabelled"})
        LessonSettings(**settings)
        return settings


class NewConsolidation(Body):
    """How long a consolidation may take; without minutes, eight passes over what is stored."""

    minutes: float | None = Field(default=None, gt=0, le=MAX_MINUTES)


class Resume(Body):
    """How to go on with a lesson."""

    force: bool | None = None


class Source(BaseModel):
    """Where the photos of a lesson come from; a consolidation needs none."""

    draft: str | None = None
    folder: str | None = None


class Lesson(BaseModel):
    """A lesson, or a consolidation of what was taught before, and what became of it."""

    id: int
    kind: Literal["lesson", "consolidation"] = "lesson"
    state: Literal["running", "stopped", "done", "refused", "failed"]
    source: Source
    created: str
    ended: str | None = None
    quick: bool
    force: bool
    photos: int | None = None
    minutes: float | None = None
    outcome: dict[str, Any] | None = None
    error: str | None = None


class Lessons(BaseModel):
    """The lessons of a model, newest first."""

    lessons: list[Lesson]


class LessonPhotos(BaseModel):
    """The uploaded photos of a lesson that is not done yet, oldest first."""

    photos: list[DraftPhoto]


class Plan(BaseModel):
    """What a lesson would learn; with `force` it is also said what would be refused as doubtful without it."""

    learn: dict[str, int]
    new_classes: list[str]
    known_already: int
    corrected: int
    repeats: int
    unlabelled: int
    skipped: list[str]
    notes: list[str]
    doubtful: list[str]
