"""Answers from the version in use: swapped when another one is published, never waited for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from triphase.app.predictor import PARTS, UNKNOWN, Predictor
from triphase.app.store.versions import Store
from triphase.data.decoding import decode_bytes
from triphase.data.sources.files import content_id
from triphase.errors import BadData, CorruptState, TriphaseError
from triphase.server import photo_ids
from triphase.server.schemas import PhotoAnswer, Probability

Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Upload:
    """A file that a client sent."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Loaded:
    """A predictor, the version that it is of, and the state of CURRENT when it was read."""

    predictor: Predictor
    version: int
    stamp: Stamp


def answer_pool() -> ThreadPoolExecutor:
    """Threads that answer, one core each: an answer is too small to be shared among cores."""
    workers = os.cpu_count() or 2
    return ThreadPoolExecutor(workers, "answers", initializer=torch.set_num_threads, initargs=(1,))


class Answering:
    """The predictor of a model directory."""

    def __init__(self, path: Path, pool: ThreadPoolExecutor, max_pixels: int) -> None:
        self.path, self._pool, self._max_pixels = path, pool, max_pixels
        self._loaded: Loaded | None = None
        self._loading = Lock()
        self._refresh: asyncio.Task[None] | None = None

    @property
    def version(self) -> int | None:
        """The version that answers, if one was read."""
        return None if self._loaded is None else self._loaded.version

    async def current(self) -> Loaded:
        """The predictor in use; it goes on answering while another version that was published is being read."""
        if self._loaded is None:
            await self.refresh()
        elif self._loaded.stamp != self._stamp() and (self._refresh is None or self._refresh.done()):
            self._refresh = asyncio.create_task(self._refresh_quietly())
        if self._loaded is None:
            Store(self.path).version()  # says what is missing
            raise CorruptState(f"{self.path} cannot be read; look at it with `triphase status`.")
        return self._loaded

    async def refresh(self) -> None:
        """Read the version in use, if it is another one; afterwards answers come from it."""
        await asyncio.to_thread(self._load)

    async def answer(self, uploads: Sequence[Upload], top: int) -> tuple[int, list[PhotoAnswer]]:
        """The version that answers, and what it says about each photo."""
        loaded = await self.current()
        loop, n = asyncio.get_running_loop(), loaded.predictor.chunk
        chunks = [uploads[start : start + n] for start in range(0, len(uploads), n)]
        work = [loop.run_in_executor(self._pool, self._answer, loaded.predictor, chunk, top) for chunk in chunks]
        return loaded.version, [answer for part in await asyncio.gather(*work) for answer in part]

    def _answer(self, predictor: Predictor, uploads: Sequence[Upload], top: int) -> list[PhotoAnswer]:
        pictures = [self._decode(upload, predictor.size) for upload in uploads]
        pixels = [picture for picture in pictures if isinstance(picture, Tensor)]
        said = iter(_answers(predictor, torch.stack(pixels), top) if pixels else ())
        answers = []
        for upload, picture in zip(uploads, pictures, strict=True):
            if isinstance(picture, str):
                answers.append(PhotoAnswer(name=upload.name, error=picture))
            else:
                about = {"name": upload.name, "id": photo_ids.to_text(content_id(upload.content))}
                answers.append(next(said).model_copy(update=about))
        return answers

    def _decode(self, upload: Upload, size: int) -> Tensor | str:
        try:
            return decode_bytes(upload.content, upload.name, (size,), max_pixels=self._max_pixels)[0]
        except BadData as error:
            return str(error)

    async def _refresh_quietly(self) -> None:
        """A version that cannot be read changes nothing: the one before goes on answering."""
        try:
            await self.refresh()
        except TriphaseError:
            await asyncio.sleep(1)

    def _load(self) -> None:
        with self._loading:
            stamp = self._stamp()
            if stamp is None:
                self._loaded = None
            elif self._loaded is None or self._loaded.stamp != stamp:
                parts, version = Store(self.path).load(parts=PARTS)
                self._loaded = Loaded(Predictor(parts), version.number, stamp)

    def _stamp(self) -> Stamp | None:
        try:
            status = (self.path / "CURRENT").stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size


def _answers(predictor: Predictor, pixels: Tensor, top: int) -> list[PhotoAnswer]:
    probabilities, known = predictor(pixels)
    best = probabilities.topk(min(top, len(predictor.names)))
    rows = zip(best.indices.tolist(), best.values.tolist(), known.tolist(), strict=True)
    answers = []
    for labels, values, ok in rows:
        name = predictor.names[labels[0]]
        likely = [Probability(label=predictor.names[c], probability=p) for c, p in zip(labels, values, strict=True)]
        answers.append(
            PhotoAnswer(
                name="", label=name if ok else UNKNOWN, known=ok, best=name, probability=values[0], top=likely
            )
        )
    return answers
