"""The review of the version in use: computed on the first request, and kept until another version is in use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar

import torch

from triphase.app.confirmed_labels import ConfirmedLabels
from triphase.app.grouping import group_similar
from triphase.app.held_out_report import (
    confusion_matrix,
    confusions,
    expected_calibration_error,
    reliability,
)
from triphase.app.photo_keys import photo_id, photo_key
from triphase.app.proportion import Proportion
from triphase.app.review import Review
from triphase.app.store.versions import Store
from triphase.errors import TriphaseError
from triphase.server.answering import AnsweredPhoto
from triphase.server.pools import Pools
from triphase.server.review_schemas import (
    ClassAdvice,
    ClassAdviceList,
    ConfusedWith,
    Confusion,
    HeldOutReport,
    ReliabilityBin,
    Suspect,
    Suspects,
)
from triphase.server.schemas import Accuracy, Neighbour
from triphase.server.taught_pictures import TaughtPictures

Result = TypeVar("Result")


class Reviewing:
    """Reviews the version in use of a model directory, and reloads it when another is in use."""

    def __init__(self, path: Path, work: Path, pictures: TaughtPictures, pools: Pools) -> None:
        self.path, self._pictures, self._pools = path, pictures, pools
        self._review: Review | None = None
        self._lock = Lock()
        self.confirmed = ConfirmedLabels(work / "confirmed.json")

    def current(self) -> Review:
        """The review of the version in use; to read it takes about a millisecond for each new photo."""
        version = Store(self.path).version()
        with self._lock:
            if self._review is None or not self._review.is_of(version):
                self._review = Review(self.path, self._review)
                self.confirmed.keep_only(self._review.taught)
            return self._review

    def prepare(self) -> None:
        """Review the version in use in the background, if the one before was reviewed."""
        if self._review is not None:
            self._pools.reviews.submit(self._prepare)

    def _prepare(self) -> None:
        with suppress(TriphaseError):  # the next request reports it
            self.current().classes()

    async def run_in_pool(self, work: Callable[[], Result]) -> Result:
        """Run work that may take seconds in the pool for reviews, so that other requests do not wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._pools.reviews, work)

    def held_out(self) -> HeldOutReport:
        """What the model says about its held-out photos."""
        review = self.current()
        bins = reliability(review.held_out)
        return HeldOutReport(
            version=review.version,
            classes=list(review.names),
            accuracy=accuracy_of(review.held_out.accuracy()),
            matrix=confusion_matrix(review.held_out),
            confusions=[
                Confusion(label=c.name, taken_for=c.taken_for, photos=[photo_key(id_) for id_ in c.ids], n=c.n)
                for c in confusions(review.held_out)
            ],
            reliability=[
                ReliabilityBin(low=b.low, high=b.high, probability=b.probability, accuracy=accuracy_of(b.accuracy))
                for b in bins
            ],
            calibration_error=expected_calibration_error(bins),
        )

    def classes(self) -> ClassAdviceList:
        """Whether enough was taught of each class."""
        review = self.current()
        advice = [
            ClassAdvice(
                name=report.name,
                taught=report.taught,
                held_out=accuracy_of(report.held_out),
                left_out=accuracy_of(report.left_out),
                together=accuracy_of(report.together),
                confused_with=[ConfusedWith(label=name, photos=n) for name, n in report.confused_with],
                gain=report.gain,
                status=report.status,
                photos_needed=report.photos_needed,
                advice=report.advice,
            )
            for report in review.classes()
        ]
        return ClassAdviceList(version=review.version, classes=advice)

    def suspects(self) -> Suspects:
        """Taught photos whose label is probably wrong."""
        review = self.current()
        found = [
            Suspect(
                id=photo_key(s.id),
                label=s.name,
                looks_like=s.looks_like,
                sure=s.sure,
                own=s.own,
                thumbnail=self._pictures.address(s.id),
            )
            for s in review.suspects(self.confirmed)
        ]
        return Suspects(version=review.version, suspects=found)

    def confirm(self, photos: Sequence[str]) -> None:
        """Remember that labels are right."""
        self.current().confirm(self.confirmed, [photo_id(key) for key in photos])

    async def nearest(self, answered: Sequence[AnsweredPhoto], k: int) -> list[list[Neighbour]]:
        """For each answer the taught photos that look most like its photo, that photo itself left out."""
        return await asyncio.to_thread(self._nearest, answered, k)

    def _nearest(self, answered: Sequence[AnsweredPhoto], k: int) -> list[list[Neighbour]]:
        index = self.current().index
        return [
            [
                Neighbour(
                    id=photo_key(n.id),
                    label=n.name,
                    similarity=n.similarity,
                    held_out=n.held_out,
                    thumbnail=self._pictures.address(n.id),
                )
                for n in index.nearest(one.features.unsqueeze(0), k, without=(one.id,))[0]
            ]
            if one.features is not None
            else []
            for one in answered
        ]

    async def unknown_groups(self, answered: Sequence[AnsweredPhoto]) -> list[int | None]:
        """For each answer the number of the group of unknown photos that it belongs to; None for known ones."""
        return await asyncio.to_thread(self._unknown_groups, answered)

    def _unknown_groups(self, answered: Sequence[AnsweredPhoto]) -> list[int | None]:
        unknown = {
            row: one.features
            for row, one in enumerate(answered)
            if one.features is not None and not one.answer.known
        }
        numbers: list[int | None] = [None] * len(answered)
        if unknown:
            rows = list(unknown)
            for number, members in enumerate(group_similar(self.current().index, torch.stack([*unknown.values()]))):
                for member in members:
                    numbers[rows[member]] = number
        return numbers


def accuracy_of(proportion: Proportion) -> Accuracy | None:
    """A proportion as an answer has it; None of nothing."""
    if proportion.share is None:
        return None
    return Accuracy(value=proportion.share, low=proportion.low, high=proportion.high, n=proportion.n)
