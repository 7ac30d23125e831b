"""The models that a server serves."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack, suppress
from pathlib import Path

from triphase.app.store.versions import Store
from triphase.directory_lock import locked
from triphase.errors import BadData, InvalidValue
from triphase.printable import printable
from triphase.server.options import ServeOptions
from triphase.server.pools import Pools
from triphase.server.problems import NotFound
from triphase.server.served_model import WORK_SUFFIX, ServedModel, photos_wait

MAX_NAME = 200  # bytes, so that there is room for what stands beside it


class Models:
    """One model, or all those in a directory."""

    def __init__(self, options: ServeOptions) -> None:
        model, folder = options.model, options.models
        if (model is None) == (folder is None):
            raise InvalidValue("Give either a model, or a folder of models with --models DIR.")
        if folder is not None and not folder.is_dir():
            raise BadData(f"There is no folder {folder}; make it, or check the spelling.")
        self.one = None if model is None else Path(os.path.abspath(model))
        self.folder = None if folder is None else Path(os.path.abspath(folder))
        self.options, self.pools = options, Pools()
        self._open: dict[str, ServedModel] = {}
        self._locks, self._opening = ExitStack(), asyncio.Lock()
        try:
            for name in self.names():
                self._serve(self.one or (self.folder or Path()) / name)
        except BaseException:
            self.release()
            raise

    async def start(self) -> None:
        """Go on with lessons that an earlier server did not finish."""
        for model in self.opened():
            await model.lessons.recover()

    async def close(self) -> None:
        """Stop lessons without loss."""
        await asyncio.gather(*(model.lessons.close() for model in self._open.values()))
        self.release()

    def release(self) -> None:
        """Let others serve these models."""
        self._locks.close()
        self.pools.shutdown()
        for model in self._open.values():
            _remove_if_unused(model.work)

    def only(self) -> ServedModel:
        """The model, if there is only one."""
        if self.one is None:
            raise InvalidValue("A folder is watched for one model: give that model in place of --models.")
        return self._open[self.one.name]

    def opened(self) -> list[ServedModel]:
        """The models that are being served."""
        return list(self._open.values())

    def names(self) -> list[str]:
        """The models that there are."""
        if self.one is not None:
            return [self.one.name]
        assert self.folder is not None
        found = {e.name for e in self.folder.iterdir() if e.is_dir() and (e / "CURRENT").is_file()}
        return sorted(found | self._begun() | set(self._open))

    def _begun(self) -> set[str]:
        """Models that may have no version yet: photos wait for a lesson, or one has not ended."""
        assert self.folder is not None
        works = [entry for entry in self.folder.glob(f"*{WORK_SUFFIX}") if photos_wait(entry)]
        names = {work.name.removesuffix(WORK_SUFFIX) for work in works}
        return {name for name in names if name and not (self.folder / name).is_file()}

    async def get(self, name: str) -> ServedModel:
        """A model by its name."""
        if name in self._open:
            return self._open[name]
        async with self._opening:  # another request may be opening it
            if name in self._open:
                return self._open[name]
            if name not in self.names():
                raise NotFound(f"There is no model {name!r} here; GET /api/v1/models lists those that there are.")
            return await self._serve_now((self.folder or Path()) / name)

    async def make(self, name: str) -> ServedModel:
        """A model that is yet to be taught, in the folder of models."""
        if self.folder is None:
            raise InvalidValue("This server serves one model; start it with --models DIR to make others.")
        _check_name(name)
        async with self._opening:
            path = self.folder / name
            foreign = path.exists() and not path.with_name(name + WORK_SUFFIX).is_dir()  # not made by a server
            if name.endswith(WORK_SUFFIX) or name in self.names() or foreign:
                raise InvalidValue(f"The name {name!r} is taken; give another one.")
            return await self._serve_now(path)

    async def _serve_now(self, path: Path) -> ServedModel:
        """A model that came up after the server was started; nobody uses it before its lessons are recovered."""
        with ExitStack() as lock:
            model = self._locked(path, lock)
            await model.lessons.recover()
            self._locks.push(lock.pop_all())
        self._open[path.name] = model
        return model

    def _serve(self, path: Path) -> None:
        self._open[path.name] = self._locked(path, self._locks)

    def _locked(self, path: Path, lock: ExitStack) -> ServedModel:
        """A model that no other server serves until `lock` is released."""
        self._check(path)
        model = ServedModel(path, self.pools, self.options)
        lock.enter_context(locked(model.work))
        return model

    @staticmethod
    def _check(path: Path) -> None:
        """Refuse what is not a model, and cannot become one."""
        _check_name(path.name)
        Store(path).directory.check_location()
        if path.name.endswith(WORK_SUFFIX):
            raise InvalidValue(f"{path} is what a server keeps beside a model; give the model.")


def _check_name(name: str) -> None:
    """Refuse names that no folder should have, or that cannot be typed from what is seen."""
    if printable(name) != name or name.startswith(".") or not name.strip() or "/" in name or "\\" in name:
        raise InvalidValue(f"A model cannot be served under the name {name[:80]!r}; choose another one.")
    if len(name.encode()) > MAX_NAME:
        raise InvalidValue(f"The name of a model has at most {MAX_NAME} bytes; give a shorter one.")


def _remove_if_unused(work: Path) -> None:
    """Leave no folder behind in which there is nothing but the lock."""
    with suppress(OSError):
        for name in ("drafts", "lessons", "inbox"):
            if (work / name).exists():
                (work / name).rmdir()
        (work / "LOCK").unlink()
        work.rmdir()
