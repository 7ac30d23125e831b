"""What the documents of a model directory may hold; whatever is read from one is validated here before it is used.

Checksums say that a file is the one that was written; they say nothing about what was written.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from triphase.app.class_names import stored_class_name

LARGEST = 2**53  # of any count; JSON readers in other languages keep integers exact up to here


class Document(BaseModel):
    """Fields of the declared types and no others; numbers are finite. Its validator is built when it is needed."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


D = TypeVar("D", bound=Document)


def _check_time(text: str) -> str:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None or not 2000 <= time.year < 3000:
        raise ValueError("not a time of day with its time zone")
    return text


def _check_class_name(text: str) -> str:
    if stored_class_name(text) != text:
        raise ValueError("not in the spelling in which names are kept")
    return text


def _check_unique(values: list[str]) -> list[str]:
    if len(set(values)) < len(values):
        raise ValueError("a name occurs twice")
    return values


Count = Annotated[int, Field(ge=0, le=LARGEST)]
VersionNumber = Annotated[int, Field(ge=1, le=LARGEST)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Time = Annotated[str, AfterValidator(_check_time)]
Word = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")]  # the name of a learner or of a part
BackboneName = Annotated[
    str, Field(pattern=r"^([a-z0-9_]{1,64}|timm:[A-Za-z0-9_.-]{1,128}(@[A-Za-z0-9_.]{1,64})?)$")
]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ClassName = Annotated[str, AfterValidator(_check_class_name)]
ClassNames = Annotated[list[ClassName], AfterValidator(_check_unique)]


# --- history --------------------------------------------------------------------------------------------------


class _Event(Document):
    version: VersionNumber  # in use after the event
    time: Time


class Taught(_Event):
    """A lesson."""

    event: Literal["taught"]
    images: Count
    classes: dict[ClassName, Count]
    before: Fraction | None
    after: Fraction | None
    forced: bool


class TaughtQuick(_Event):
    """The quick part of a lesson."""

    event: Literal["taught_quick"]
    images: Count
    drop: Annotated[float, Field(ge=-1, le=1)] | None


class Renamed(_Event):
    """A class got another name; None stands for a name that was forgotten everywhere."""

    event: Literal["renamed"]
    old: ClassName | None
    new: ClassName | None


class Untaught(_Event):
    """Single photos were taken out."""

    event: Literal["untaught"]
    images: Count


class Moved(_Event):
    """Single photos got another class."""

    event: Literal["moved"]
    images: Count
    classes: dict[ClassName, Count]  # that they have now


class Consolidated(_Event):
    """csf was trained again on the stored samples."""

    event: Literal["consolidated"]
    before: Fraction
    after: Fraction


class Undone(_Event):
    """The version before came back into use."""

    event: Literal["undone"]
    undid: VersionNumber


class Other(_Event):
    """A class was forgotten, or a program saved its model."""

    event: Literal["forgot", "saved"]


AnyEvent = Annotated[
    Taught | TaughtQuick | Renamed | Untaught | Moved | Consolidated | Undone | Other, Field(discriminator="event")
]
_EVENT: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent, config=ConfigDict(defer_build=True))


def _check_event(event: dict[str, Any]) -> dict[str, Any]:
    _EVENT.validate_python(event)
    return event


Event = Annotated[dict[str, Any], AfterValidator(_check_event)]


# --- versions -------------------------------------------------------------------------------------------------


EngineName = Annotated[str, Field(pattern=r"^[\w. +-]{1,64}$")]


class MemoryInfo(Document):
    """How much of the replay memory is used."""

    samples: Count
    capacity: Count
    bytes: Count
    exemplars: Count
    alike: Count = 0  # exemplars that look like a training photo


class ClassCounts(Document):
    """How many photos of a class were taught, are stored to learn from again, and to measure with."""

    taught: Count
    stored: Count
    exemplars: Count


class Info(Document):
    """What a version says about its model."""

    classes: ClassNames = Field(min_length=1)
    counts: list[ClassCounts]  # of each class
    backbone: BackboneName
    image_size: Annotated[int, Field(ge=1, le=1024)]
    learner: Word
    replay: Literal["raw", "latent", "none"]
    engine: EngineName = "torch"  # that ran the frozen blocks
    device: EngineName = "cpu"  # that the network computed on
    lessons: Count
    memory: MemoryInfo
    taught: Count
    unknown: bool
    accuracy: Fraction | None = None
    labels: Literal["str", "int", "bool", "float"] = "str"

    @model_validator(mode="after")
    def _check_consistency(self) -> Info:
        if len(self.counts) != len(self.classes):
            raise ValueError(f"{len(self.counts)} counts for {len(self.classes)} classes")
        return self


def _check_info(info: dict[str, Any]) -> dict[str, Any]:
    Info.model_validate(info)
    return info


class Identity(Document):
    """What stays the same of a class when it is renamed."""

    id: Annotated[
        str, Field(pattern=r"^\d{1,16}-\d{1,16}$")
    ]  # the version in which it arrived, and its place there
    former_names: ClassNames


class Part(Document):
    """One top-level entry of a state: the SHA-256 of its content, and the size of its file."""

    sha256: Digest
    bytes: Count


class Version(Document):
    """A published model: its parent, what is known about it, the identities of its classes, and its parts."""

    number: VersionNumber
    parent: VersionNumber | None
    created: Time
    info: Annotated[dict[str, Any], AfterValidator(_check_info)]
    identities: dict[ClassName, Identity]
    parts: dict[Word, Part]

    @model_validator(mode="after")
    def _check_consistency(self) -> Version:
        if self.parent is not None and self.parent >= self.number:
            raise ValueError("the parent is not older")
        if set(self.identities) != set(self.info["classes"]):
            raise ValueError("the identities are not those of the classes")
        if len({identity.id for identity in self.identities.values()}) < len(self.identities):
            raise ValueError("two classes have the same identity")
        return self


class Current(Document):
    """What CURRENT says: the version in use, the highest number ever given, and the newest event."""

    version: Count  # 0 before the first one is published
    highest: Count
    event: Event | None

    @model_validator(mode="after")
    def _check_consistency(self) -> Current:
        if self.version > self.highest:
            raise ValueError("the version in use has a number that was never given")
        if self.version != (self.event["version"] if self.event else 0):
            raise ValueError("the event is not the one that led to the version in use")
        return self


class LessonMark(Document):
    """To which lesson the checkpoint in work/ belongs."""

    lesson: Digest  # of the photos and the options
    parent: Count  # the version that it goes on from, 0 for a first lesson
    threads: Annotated[int, Field(ge=1, le=1024)]
    engine: EngineName = "torch"
    device: EngineName = "cpu"
    epochs: Count = 0  # of a consolidation


# --- validation -----------------------------------------------------------------------------------------------


def validate(kind: type[D], document: Any) -> D:
    """The document as a value of its kind; ValueError with the first thing that is wrong in it."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise ValueError(reason(error)) from error


def validate_event(event: Any) -> dict[str, Any]:
    """An event of the history; ValueError with the first thing that is wrong in it."""
    try:
        _EVENT.validate_python(event)
    except ValidationError as error:
        raise ValueError(reason(error)) from error
    checked: dict[str, Any] = event
    return checked


def reason(error: ValidationError) -> str:
    """The first finding in words, such as "memory.bytes: Input should be a valid integer"."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "union_tag_invalid":  # its message repeats whatever was found
        message = "not a known kind of event"
    return f"{place}: {message}" if place else message
