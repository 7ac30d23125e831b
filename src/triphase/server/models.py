"""The models that a server serves, and what it keeps beside each of them."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

from triphase.app.class_names import class_name
from triphase.app.held_out_accuracy import held_out_accuracy
from triphase.app.store.schema import Version
from triphase.app.store.versions import Store
from triphase.directory_lock import locked
from triphase.errors import BadData, InvalidValue
from triphase.server.answering import Answering, answer_pool
from triphase.server.drafts import Drafts
from triphase.server.lessons import Lessons
from triphase.server.limits import Limits
from triphase.server.problems import NotFound
from triphase.server.schemas import Accuracy, ClassDescription, MemoryUse, ModelDescription, ModelSummary

BESIDE = ".serve"  # what a folder beside a model ends with that only the server writes


class ServedModel:
    """One model: its answers, its lessons, and photos for the next one."""

    def __init__(self, path: Path, pool: ThreadPoolExecutor, limits: Limits) -> None:
        self.path, self.name, self.pool = path, path.name, pool
        self.store = Store(path)
        self.work = path.with_name(path.name + BESIDE)
        self.answering = Answering(path, pool, limits.pixels)
        self.drafts = Drafts(self.work / "drafts", limits)
        self.lessons = Lessons(path, self.work / "lessons", self.drafts, self._came_into_use)
        self._accuracies: tuple[int, Accuracy | None, list[Accuracy | None]] | None = None

    async def changed(self) -> None:
        """Answer from the version that came into use."""
        await self.answering.refresh()

    async def _came_into_use(self, photos: Path) -> None:
        await self.changed()

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
        accuracy, _ = self._measured(version)
        current = self.store.directory.read_current()
        return ModelDescription(
            name=self.name,
            version=version.number if version else None,
            created=version.created if version else None,
            lessons=info.get("lessons", 0),
            taught=info.get("taught", 0),
            classes=self.classes(),
            accuracy=accuracy,
            backbone=info.get("backbone"),
            image_size=info.get("image_size"),
            learner=info.get("learner"),
            replay=info.get("replay"),
            memory=MemoryUse(**info["memory"]) if info else None,
            unknown=info.get("unknown", False),
            pending=bool(current and current.event and current.event["event"] == "taught_quick"),
            lesson=self.lessons.running,
            bytes=_bytes(self.path),
        )

    def classes(self) -> list[ClassDescription]:
        """The classes in order of arrival."""
        version = self.store.current()
        if version is None:
            return []
        rows = zip(version.info["classes"], version.info["counts"], self._measured(version)[1], strict=True)
        return [ClassDescription(name=name, accuracy=accuracy, **counts) for name, counts, accuracy in rows]

    def _measured(self, version: Version | None) -> tuple[Accuracy | None, list[Accuracy | None]]:
        """Accuracy on held-out photos, overall and per class; computed once for each version."""
        if version is None:
            return None, []
        if self._accuracies is None or self._accuracies[0] != version.number:
            overall, per_class = held_out_accuracy(self.store, version.number)
            of = [None if a is None else Accuracy(**asdict(a)) for a in (overall, *per_class)]
            self._accuracies = version.number, of[0], of[1:]
        return self._accuracies[1:]


class Models:
    """One model, or all those in a directory."""

    def __init__(self, model: Path | None, folder: Path | None, limits: Limits) -> None:
        if (model is None) == (folder is None):
            raise InvalidValue("Give either a model, or a folder of models with --models DIR.")
        if folder is not None and not folder.is_dir():
            raise BadData(f"There is no folder {folder}; make it, or check the spelling.")
        self.one = None if model is None else model.absolute()
        self.folder = None if folder is None else folder.absolute()
        if self.one is not None:
            class_name(self.one.name)
        self.limits, self.pool = limits, answer_pool()
        self._open: dict[str, ServedModel] = {}
        self._locks = ExitStack()
        for name in self.names():
            self._serve(self.one or (self.folder or Path()) / name)

    async def start(self) -> None:
        """Go on with lessons that an earlier server did not finish."""
        for model in self.opened():
            await model.lessons.recover()

    async def close(self) -> None:
        """Stop lessons without loss."""
        await asyncio.gather(*(model.lessons.close() for model in self._open.values()))
        self._locks.close()
        self.pool.shutdown(cancel_futures=True)
        for model in self._open.values():
            _remove_if_unused(model.work)

    def opened(self) -> list[ServedModel]:
        """The models that are being served."""
        return list(self._open.values())

    def names(self) -> list[str]:
        """The models that there are."""
        if self.one is not None:
            return [self.one.name]
        assert self.folder is not None
        found = {e.name for e in self.folder.iterdir() if e.is_dir() and (e / "CURRENT").is_file()}
        return sorted(found | set(self._open))

    async def get(self, name: str) -> ServedModel:
        """A model by its name."""
        if name in self._open:
            return self._open[name]
        if name not in self.names():
            raise NotFound(f"There is no model {name!r} here; GET /api/v1/models lists those that there are.")
        return await self._serve_now((self.folder or Path()) / name)

    async def make(self, name: str) -> ServedModel:
        """A model that is yet to be taught, in the folder of models."""
        if self.folder is None:
            raise InvalidValue("This server serves one model; start it with --models DIR to make others.")
        name = class_name(name)
        if name.endswith(BESIDE) or name in self.names() or (self.folder / name).exists():
            raise InvalidValue(f"The name {name!r} is taken; give another one.")
        return await self._serve_now(self.folder / name)

    async def _serve_now(self, path: Path) -> ServedModel:
        """A model that came up after the server was started."""
        model = self._serve(path)
        await model.lessons.recover()
        return model

    def _serve(self, path: Path) -> ServedModel:
        self._check(path)
        model = ServedModel(path, self.pool, self.limits)
        self._locks.enter_context(locked(model.work))
        self._open[path.name] = model
        return model

    @staticmethod
    def _check(path: Path) -> None:
        """Refuse what is not a model, and cannot become one."""
        Store(path).directory.check_location()
        if path.name.endswith(BESIDE):
            raise InvalidValue(f"{path} is what a server keeps beside a model; give the model.")


def _bytes(folder: Path) -> int:
    """What lies in a folder, in which a writer may be at work."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(place, name).stat().st_size
    return size


def _remove_if_unused(work: Path) -> None:
    """Leave no folder behind in which there is nothing but the lock."""
    with suppress(OSError):
        for name in ("drafts", "lessons"):
            if (work / name).exists():
                (work / name).rmdir()
        (work / "LOCK").unlink()
        work.rmdir()
