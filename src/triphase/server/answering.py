"""Answers from the version in use; a new version is swapped in without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from triphase.app.answers import doubts
from triphase.app.photo_keys import photo_key
from triphase.app.predictor import PARTS, UNKNOWN, Predictor
from triphase.app.store.versions import Store
from triphase.data.decoding import decode_bytes
from triphase.data.sources.files import content_id
from triphase.errors import BadData, CorruptState, TriphaseError
from triphase.server.pools import Pools
from triphase.server.schemas import PhotoAnswer, Probability

Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Upload:
    """A file that a client sent."""

    name: str
    content: bytes


@dataclass(frozen=True)
class AnsweredPhoto:
    """The answer to a photo; its features, if they were asked for, compare it with others."""

    answer: PhotoAnswer
    id: int = 0
    doubt: float = 0.0  # from 0, sure, to 2, like nothing that was taught
    features: Tensor | None = None  # (D,)


@dataclass(frozen=True)
class Loaded:
    """A predictor, the number of its version, and the state of CURRENT when it was read."""

    predictor: Predictor
    version: int
    stamp: Stamp


class Answering:
    """Answers from the version in use of a model directory, and reloads it when CURRENT changes."""

    def __init__(self, path: Path, pools: Pools, max_pixels: int, device: str = "cpu") -> None:
        self.path, self._pools, self._max_pixels, self._device = path, pools, max_pixels, device
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
        await asyncio.get_running_loop().run_in_executor(self._pools.reading, self._load)

    async def answer(
        self, uploads: Sequence[Upload], top: int = 1, *, features: bool = False
    ) -> tuple[int, list[AnsweredPhoto]]:
        """The version that answers, and its answer for each photo."""
        loaded = await self.current()
        loop, n = asyncio.get_running_loop(), loaded.predictor.chunk
        work = [
            loop.run_in_executor(
                self._pools.answers, self._answer, loaded.predictor, uploads[start : start + n], top, features
            )
            for start in range(0, len(uploads), n)
        ]
        return loaded.version, [answered for part in await asyncio.gather(*work) for answered in part]

    def _answer(
        self, predictor: Predictor, uploads: Sequence[Upload], top: int, features: bool
    ) -> list[AnsweredPhoto]:
        pictures = [self._decode(upload, predictor.size) for upload in uploads]
        pixels = [picture for picture in pictures if isinstance(picture, Tensor)]
        answers = iter(_answers(predictor, torch.stack(pixels), top) if pixels else ())
        seen = iter(predictor.features(torch.stack(pixels)) if pixels and features else ())
        found = []
        for upload, picture in zip(uploads, pictures, strict=True):
            if isinstance(picture, str):
                found.append(AnsweredPhoto(PhotoAnswer(name=upload.name, error=picture)))
                continue
            id_ = content_id(upload.content)
            answer, doubt = next(answers)
            answer = answer.model_copy(update={"name": upload.name, "id": photo_key(id_)})
            found.append(AnsweredPhoto(answer, id_, doubt, next(seen, None)))
        return found

    def _decode(self, upload: Upload, size: int) -> Tensor | str:
        try:
            return decode_bytes(upload.content, upload.name, (size,), max_pixels=self._max_pixels)[0]
        except BadData as error:
            return str(error)

    async def _refresh_quietly(self) -> None:
        """Refresh; if the new version cannot be read, the previous one continues to answer."""
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
                parts, version = Store(self.path).load(parts=PARTS, arrays=True)
                self._loaded = Loaded(Predictor(parts, self._device, threads=1), version.number, stamp)

    def _stamp(self) -> Stamp | None:
        try:
            status = (self.path / "CURRENT").stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size


def _answers(predictor: Predictor, pixels: Tensor, top: int) -> list[tuple[PhotoAnswer, float]]:
    """What the model says about pictures, and how doubtful that is."""
    probabilities, known = predictor(pixels)
    best = probabilities.topk(min(top, len(predictor.names)))
    columns = best.indices.tolist(), best.values.tolist(), known.tolist(), doubts(probabilities, known).tolist()
    answers = []
    for labels, values, ok, doubt in zip(*columns, strict=True):
        name = predictor.names[labels[0]]
        likely = [Probability(label=predictor.names[c], probability=p) for c, p in zip(labels, values, strict=True)]
        label = name if ok else UNKNOWN
        answer = PhotoAnswer(name="", label=label, known=ok, best=name, probability=values[0], top=likely)
        answers.append((answer, doubt))
    return answers
