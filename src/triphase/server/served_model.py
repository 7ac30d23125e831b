"""A model that is served, and what is kept beside it."""

from __future__ import annotations

from pathlib import Path

from triphase.app.class_names import no_such_class
from triphase.app.photo_keys import photo_key
from triphase.app.store.schema import Version
from triphase.app.store.versions import Store
from triphase.app.taught_classes import TaughtClasses, taught_classes
from triphase.app.timeline import TimelineEntry, timeline
from triphase.server.answering import Answering
from triphase.server.drafts import Drafts
from triphase.server.lesson_records import LessonRecords
from triphase.server.lessons import Lessons
from triphase.server.options import ServeOptions
from triphase.server.pools import Pools
from triphase.server.review_schemas import TaughtPhoto, TaughtPhotoList
from triphase.server.reviewing import Reviewing, accuracy_of
from triphase.server.schemas import ClassDescription, MemoryUse, ModelDescription, ModelSummary, Versions
from triphase.server.taught_pictures import TaughtPictures
from triphase.server.unsure import UnsurePhotos
from triphase.state import folder_bytes

WORK_SUFFIX = ".serve"  # of the folder beside a model that only the server writes
SHOWN = 12  # thumbnails of a class, the newest


def photos_wait(work: Path) -> bool:
    """Whether photos lie beside a model, for a lesson that is yet to begin or has not ended."""
    records = LessonRecords(work / "lessons")
    records.read()
    return any(work.glob("drafts/*/*/*")) or any(record.lesson.state != "done" for record in records)


class ServedModel:
    """One model: its answers, its lessons, photos for the next one, and photos to label."""

    def __init__(self, path: Path, pools: Pools, options: ServeOptions) -> None:
        self.path, self.name, self.pools = path, path.name, pools
        self.store = Store(path)
        self.work = path.with_name(path.name + WORK_SUFFIX)
        self.answering = Answering(path, pools, options.limits.pixels, options.device)
        self.drafts = Drafts(self.work / "drafts", options.limits)
        self.lessons = Lessons(
            path,
            self.work / "lessons",
            self.drafts,
            self.on_published,
            thumbnails=options.thumbnails,
            device=options.device,
        )
        self.pictures = TaughtPictures(path)
        self.reviewing = Reviewing(path, self.work, self.pictures, pools)
        self.unsure = UnsurePhotos(
            self.work / "inbox", options.keep_unsure, self.name, self.answering, self.reviewing
        )
        self._classes: tuple[Version, TaughtClasses] | None = None

    async def on_published(self) -> None:
        """Answer from the version now in use, and prepare its review."""
        await self.answering.refresh()
        self.reviewing.prepare()

    def summary(self) -> ModelSummary:
        """The model in a list."""
        version = self.store.current()
        return ModelSummary(
            name=self.name,
            version=version.number if version else None,
            classes=len(version.info["classes"]) if version else 0,
            lesson=self.lessons.running,
        )

    def description(self) -> ModelDescription:
        """What the model is and knows."""
        version = self.store.current()
        info = version.info if version else {}
        current = self.store.directory.read_current()
        return ModelDescription(
            name=self.name,
            version=version.number if version else None,
            created=version.created if version else None,
            lessons=info.get("lessons", 0),
            taught=sum(counts["taught"] for counts in info.get("counts", [])),
            classes=self._describe_classes(version),
            accuracy=accuracy_of(self._taught(version).accuracy) if version else None,
            backbone=info.get("backbone"),
            image_size=info.get("image_size"),
            learner=info.get("learner"),
            replay=info.get("replay"),
            memory=MemoryUse(**info["memory"]) if info else None,
            unknown=info.get("unknown", False),
            pending=bool(current and current.event and current.event["event"] == "taught_quick"),
            lesson=self.lessons.running,
            inbox=len(self.unsure.inbox.photos()),
            bytes=folder_bytes(self.path),
        )

    def classes(self) -> list[ClassDescription]:
        """The classes in order of arrival."""
        return self._describe_classes(self.store.current())

    def photos(self, label: str, offset: int, limit: int) -> TaughtPhotoList:
        """Some of the taught photos of a class, the newest first."""
        version = self.store.version()
        names = version.info["classes"]
        if label not in names:
            raise no_such_class(names, label)
        newest = self._taught(version).photos[names.index(label)][::-1]
        shown = [
            TaughtPhoto(id=photo_key(id_), thumbnail=self.pictures.address(id_))
            for id_ in newest[offset : offset + limit]
        ]
        return TaughtPhotoList(version=version.number, total=len(newest), photos=shown)

    def taught_photos(self) -> set[int]:
        """Ids of the photos that the version in use was taught."""
        return {id_ for photos in self._taught(self.store.version()).photos for id_ in photos}

    def versions(self) -> Versions:
        """What happened to the model, oldest first."""
        current = self.store.current()
        if current is None:
            return Versions(version=None, undo_to=None, kept=[], events=[])
        events, kept = [_described(entry) for entry in timeline(self.path)], self.store.version_numbers()
        undo_to = current.parent if current.parent in kept else None
        return Versions(version=current.number, undo_to=undo_to, kept=kept, events=events)

    def _describe_classes(self, version: Version | None) -> list[ClassDescription]:
        if version is None:
            return []
        taught = self._taught(version)
        rows = zip(version.info["classes"], version.info["counts"], taught.accuracies, taught.photos, strict=True)
        return [
            ClassDescription(name=name, accuracy=accuracy_of(accuracy), thumbnails=self._newest(photos), **counts)
            for name, counts, accuracy, photos in rows
        ]

    def _newest(self, photos: list[int]) -> list[str]:
        """Where thumbnails of the newest photos are found."""
        addresses = (self.pictures.address(id_) for id_ in reversed(photos))
        return [address for address, _ in zip(filter(None, addresses), range(SHOWN), strict=False)]

    def _taught(self, version: Version) -> TaughtClasses:
        """What a version has recorded of its classes; read once for each version."""
        if self._classes is None or self._classes[0] != version:
            self._classes = version, taught_classes(self.store, version)
        return self._classes[1]


def _described(entry: TimelineEntry) -> dict[str, object]:
    """An event of the history, and what is known about the version after it."""
    accuracy = None if entry.accuracy is None else accuracy_of(entry.accuracy)
    about = {"in_use": entry.in_use, "kept": entry.kept, "known_classes": entry.classes, "taught": entry.photos}
    return {**entry.event, **about, "accuracy": None if accuracy is None else accuracy.model_dump()}
