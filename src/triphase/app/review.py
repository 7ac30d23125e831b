"""Review a model between lessons: taught photos, doubtful labels, and whether enough was taught.

`Review` belongs to one version. Open it once, keep it while that version is in use, and share it between threads.
"""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path

from triphase.app.class_report import ClassReport, class_reports
from triphase.app.confirmed_labels import ConfirmedLabels
from triphase.app.held_out_report import HeldOut
from triphase.app.label_check import FOLDS, LeftOut, Suspect, leave_out, suspects
from triphase.app.model import Model
from triphase.app.store.schema import Version
from triphase.app.store.versions import open_store
from triphase.app.taught_index import TaughtIndex


class Review:
    """The taught photos of one version, with the model's answers.

    Opening takes about a millisecond for each stored photo that `before` does not know; slower results are
    computed on first use.
    """

    def __init__(self, path: Path, before: Review | None = None) -> None:
        """Of the version in use of a model directory; `before` is the review of another version of this model."""
        state, version = open_store(path).load()
        model = Model.from_state(state)
        self.version, self._document = version.number, version
        self.names = tuple(model.names)
        self.identities = {name: identity.id for name, identity in version.identities.items()}
        self.taught = dict(model.taught)  # id -> label
        self.index: TaughtIndex = TaughtIndex(model, before.index if before is not None else None)
        self.held_out = HeldOut.of(model)
        self._closed_form = model.learner.closed_form
        self._counts = [counts["taught"] for counts in model.counts()]
        self._lock = threading.Lock()

    def is_of(self, version: Version) -> bool:
        """Whether this is the review of that version as it is now: `forget --everywhere` rewrites versions."""
        return self._document == version

    def suspects(self, confirmed: ConfirmedLabels | None = None) -> list[Suspect]:
        """Taught photos whose label is probably wrong, the most probable mistakes first."""
        known = confirmed.by_name(self.identities) if confirmed is not None else None
        return suspects(self.index, self.left_out(), known)

    def confirm(self, confirmed: ConfirmedLabels, ids: list[int]) -> None:
        """Remember that these photos show the class that they were taught as; ids never taught are ignored."""
        labels = {id_: self.taught[id_] for id_ in ids if id_ in self.taught}
        confirmed.add({id_: self.identities[self.names[label]] for id_, label in labels.items()})

    def classes(self) -> list[ClassReport]:
        """For each class whether enough was taught."""
        return class_reports(self.index, self._counts, self.held_out, self.left_out(), self.left_out_half())

    def left_out(self) -> LeftOut:
        """Leave-out answers for each stored photo."""
        with self._lock:
            return self._left_out

    def left_out_half(self) -> LeftOut:
        """The same by a closed form that has seen half of the photos."""
        with self._lock:
            return self._left_out_half

    @cached_property
    def _left_out(self) -> LeftOut:
        return leave_out(self.index, self._closed_form, FOLDS)

    @cached_property
    def _left_out_half(self) -> LeftOut:
        return leave_out(self.index, self._closed_form, 2)
