"""Photos with unsure answers: kept in the inbox, and ranked by how much their labels would teach."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from urllib.parse import quote

import torch
from torch import Tensor

from triphase.app.grouping import group_similar, rank_by_informativeness
from triphase.app.inbox import Inbox, InboxPhoto
from triphase.app.photo_keys import photo_id, photo_key
from triphase.app.predictor import Answer
from triphase.app.taught_index import TaughtIndex
from triphase.server.answering import AnsweredPhoto, Answering, Upload
from triphase.server.drafts import Drafts
from triphase.server.inbox_schemas import InboxItem, InboxList
from triphase.server.problems import NotFound
from triphase.server.reviewing import Reviewing

UNSURE = 0.5  # answers are unsure above this doubt: the margin between the two best classes is half or less
MAX_RANKED = 500  # photos: the newest


@dataclass(frozen=True)
class _Seen:
    """What one version says about a photo."""

    version: int
    doubt: float
    known: bool
    features: Tensor


class UnsurePhotos:
    """The photos in the inbox of one model."""

    def __init__(self, folder: Path, max_bytes: int, name: str, answering: Answering, reviewing: Reviewing) -> None:
        self.inbox = Inbox(folder, max_bytes)
        self._base = f"/api/v1/models/{quote(name, safe='')}/inbox/thumbnails"
        self._answering, self._reviewing = answering, reviewing
        self._seen: dict[int, _Seen] = {}
        self._lock = Lock()

    async def keep(self, uploads: Sequence[Upload], answered: Sequence[AnsweredPhoto]) -> None:
        """Keep the photos with unsure answers, if the inbox may hold any."""
        if self.inbox.max_bytes:
            await asyncio.to_thread(self._keep, uploads, answered)

    async def ranked(self) -> InboxList:
        """The photos, sorted by how much their labels would teach."""
        photos = self.inbox.photos()
        newest = {photo.id: photo for photo in photos[-MAX_RANKED:]}
        await self._look_at(newest)
        items = await asyncio.to_thread(self._ranked, newest)
        return InboxList(photos=items, total=len(photos), bytes=self.inbox.bytes, max_bytes=self.inbox.max_bytes)

    def read(self, key: str) -> bytes:
        """The content of a photo."""
        file = self.inbox.file(photo_id(key))
        if file is None:
            raise NotFound(f"The inbox has no photo {key}.")
        return file.read_bytes()

    def label(self, keys: Sequence[str], label: str, drafts: Drafts, draft: str) -> None:
        """Move photos into a draft."""
        names = {photo.id: photo.name for photo in self.inbox.photos()}
        contents = {photo_id(key): self.read(key) for key in keys}
        for id_, content in contents.items():
            drafts.add(draft, label, names.get(id_, "photo"), content)
            self.inbox.remove([id_])

    def _keep(self, uploads: Sequence[Upload], answered: Sequence[AnsweredPhoto]) -> None:
        for upload, one in zip(uploads, answered, strict=True):
            answer = one.answer
            if answer.error is None and is_unsure(one):
                kept = Answer(answer.label or "", answer.probability or 0.0, answer.best or "", bool(answer.known))
                self.inbox.add(upload.content, upload.name, kept)

    async def _look_at(self, photos: dict[int, InboxPhoto]) -> None:
        """Ask the version in use about photos that it has not seen."""
        version = (await self._answering.current()).version
        fresh = [id_ for id_ in photos if id_ not in self._seen or self._seen[id_].version != version]
        files = [(id_, file) for id_ in fresh if (file := self.inbox.file(id_)) is not None]
        uploads = await asyncio.to_thread(_read, files)
        version, answered = await self._answering.answer(uploads, features=True)
        with self._lock:
            for (id_, _), one in zip(files, answered, strict=True):
                if one.features is not None:
                    self._seen[id_] = _Seen(version, one.doubt, bool(one.answer.known), one.features)
            self._seen = {id_: seen for id_, seen in self._seen.items() if self.inbox.file(id_) is not None}

    def _ranked(self, photos: dict[int, InboxPhoto]) -> list[InboxItem]:
        with self._lock:
            seen = {id_: self._seen[id_] for id_ in photos if id_ in self._seen}
        if not seen:
            return []
        index: TaughtIndex = self._reviewing.current().index
        groups = group_similar(index, torch.stack([one.features for one in seen.values()]))
        doubt = torch.tensor([one.doubt for one in seen.values()])
        known = torch.tensor([one.known for one in seen.values()])
        ids = list(seen)
        return [
            self._item(photos[ids[place.row]], place.group, place.doubt, place.reason)
            for place in rank_by_informativeness(doubt, known, groups)
        ]

    def _item(self, photo: InboxPhoto, group: int, doubt: float, reason: str) -> InboxItem:
        key = photo_key(photo.id)
        return InboxItem(
            id=key,
            name=photo.name,
            time=photo.time,
            best=photo.best,
            probability=photo.probability,
            known=photo.known,
            group=group,
            doubt=doubt,
            reason=reason,
            thumbnail=f"{self._base}/{key}",
        )


def is_unsure(answered: AnsweredPhoto) -> bool:
    """Whether the answer is "unknown", or the two best classes are about equally probable."""
    return not answered.answer.known or answered.doubt > UNSURE


def _read(files: Sequence[tuple[int, Path]]) -> list[Upload]:
    """The files; one that was removed in the meantime is empty, and therefore not answered."""
    found = []
    for _, file in files:
        try:
            found.append(Upload(file.name, file.read_bytes()))
        except FileNotFoundError:
            found.append(Upload(file.name, b""))
    return found
