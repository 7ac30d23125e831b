"""What a model directory holds: a learner, its memory, the names of its classes, and how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from triphase.app import calibration, hold_out, near_duplicates, ood
from triphase.app.near_duplicates import matches_stored, whole_groups
from triphase.app.options import LEARNERS, Options, parse_memory
from triphase.context import Context
from triphase.data.batches import Batches
from triphase.data.feature_cache import encode, features, latents, pack, unpack
from triphase.data.images import Images
from triphase.data.memory import HELD_OUT, TRAIN, Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.errors import CorruptState, InvalidValue
from triphase.learners import SLDA, ClosedForm, QuickLearner, Teachable
from triphase.learners.protocol import Tick, ignore
from triphase.models import SplitClassifier, backbone, build
from triphase.randomness import keys

EXEMPLARS = 50  # of a class at most, near-copies of them aside
SHARE = 0.2  # of a class's photos that are kept for measuring
BATCH = 256
ENOUGH = 10  # photos of a class from which its labels can be doubted
FOLDS = 4  # parts of a lesson that are scored in turn, where no exemplar is kept
ACCEPT = {1: (0.95,), 2: (0.96, 0.99)}  # share of known images that each threshold lets pass: 95 % in all


@dataclass(frozen=True)
class Answer:
    """What a model says about one image."""

    label: str  # the class, or "unknown"
    probability: float  # of the class that fits best, whether or not it is trusted
    best: str  # that class
    known: bool


class Model:
    """A learner with names; `state_dict` is what a version of a model directory consists of."""

    def __init__(self, options: Options, *, blank: bool = False, context: Context | None = None) -> None:
        """`blank`: a state will be loaded, so pre-trained weights need not be read."""
        self.options = options
        self.context = Context() if context is None else context
        size = options.image_size or backbone(options.backbone).photo_size
        self.network: SplitClassifier = build(
            options.backbone, 0, image_size=size, seed=options.seed, load_pretrained=not blank
        )
        self.network.freeze("llf")
        self.memory = self._make_memory()
        takes_memory = options.learner in ("anchored", "tpc")
        make = LEARNERS[options.learner]
        memory = self.memory if takes_memory else None
        self.learner: Teachable = make(self.network, memory, seed=options.seed, context=self.context)
        self._remembers = takes_memory
        self.names: list[str] = []
        self.lessons = 0
        self.taught: dict[int, int] = {}  # id of a photo -> the class it was taught as
        self.apart: set[int] = set()  # ids of those that were held out: they never entered statistics
        self.pending: dict[int, int] = {}  # the same of photos that were glanced at, and not learned yet
        self.temperature = 1.0
        self.exemplar_right = torch.empty(0, dtype=torch.bool)  # which exemplars are recognised
        self._answered = torch.empty(0, dtype=torch.long), torch.empty(0, 0)  # their ids and scores, once fitted
        self._features = torch.empty(0, dtype=torch.long), torch.empty(0, 0)  # what the untouched csf makes of them
        self.thresholds: list[float] = []  # of each column of `familiarity`
        self.moments: list[ood.Moments] = []  # of the same, where no exemplar is kept
        self.estimated = False  # a class was forgotten: the spread within the others comes from stored samples

    @property
    def size(self) -> int:
        """The side of the square that photos are scaled to."""
        return self.network.image_size or 32

    # --- lessons ------------------------------------------------------------------------------------------------

    def lesson(self, images: Images, names: Sequence[str], hashes: Tensor) -> tuple[Experience, list[str]]:
        """Images (labels are rows of `names`) as the next experience, and the names of all classes after it.

        About a fifth of each class's photos is held out to measure with, in whole groups of near-duplicates; so
        is whatever resembles a photo that is held out already. Without replay nothing is held out.
        """
        brought = [names[label] for label in images.labels.unique().tolist()]
        after = self.names + [name for name in names if name in brought and name not in self.names]
        number = {name: label for label, name in enumerate(after)}
        labels = torch.tensor([number.get(name, -1) for name in names], dtype=torch.long)[images.labels]
        renamed = images.select(torch.arange(len(images)), labels)
        if self.memory is None:
            return Experience(self.lessons + 1, renamed), after
        groups = near_duplicates.groups(hashes, labels)
        limit = min(EXEMPLARS, max(1, (self.memory.capacity or 0) // len(after) // 4))
        key, slots = keys(self.options.seed + 1, images.ids), self.memory.slots(HELD_OUT)
        held = hold_out.choose(groups, labels, key, limit, SHARE, held_before=self.memory["y"][slots].tolist())
        near = torch.zeros_like(held)
        if "hash" in self.memory.columns:
            alike = matches_stored(hashes, labels, self.memory["hash"][slots], self.memory["y"][slots])
            near = whole_groups(alike, groups)
            held = whole_groups(held | alike, groups)
            trained = self.memory.slots(TRAIN)
            seen = matches_stored(hashes, labels, self.memory["hash"][trained], self.memory["y"][trained])
            held &= ~whole_groups(seen & ~alike, groups)  # what resembles training photos measures nothing
        for label in labels.unique().tolist():  # a class is never left without a photo to learn from
            rows = labels == label
            if bool(held[rows].all()) and label >= len(self.names):
                held[rows] = False
        if bool(held.all()):
            held = near  # what resembles an exemplar is not trained on, even if there is nothing else
        return Experience(self.lessons + 1, renamed, held, {"hash": hashes}), after

    def learn(self, experience: Experience, names: Sequence[str], recipe: Recipe, tick: Tick = ignore) -> None:
        """Learn a lesson to the end; continued after a crash, it goes on where the state was saved."""
        if experience.held_out is None and self.memory is not None:
            nothing = torch.zeros(len(experience.images), dtype=torch.bool)
            experience = Experience(experience.index, experience.images, nothing, experience.columns)
        if len(experience.training) == 0:  # nothing but near-duplicates of exemplars
            self._count(experience, names)
            return
        self.learner.learn(experience, recipe, tick)
        if self.memory is not None and not self._remembers:
            seed, context = self.options.seed, self.context
            Batches(self.network, experience, self.memory, recipe, seed=seed, context=context).update_memory()
        self._count(experience, names)

    def glance(self, experience: Experience, names: Sequence[str], recipe: Recipe) -> None:
        """Learn a lesson by closed form alone, in seconds; `learn` does the rest."""
        assert isinstance(self.learner, QuickLearner), "the other learners have one speed"
        self.learner.learn_quick(experience, recipe)
        self.names = list(names)
        self.pending = _labelled(experience.images)
        moments = self.moments
        self._trust(experience)
        self.moments = moments  # `learn` will count these photos

    def _count(self, experience: Experience, names: Sequence[str]) -> None:
        self.names, self.lessons = list(names), experience.index
        self.taught |= _labelled(experience.images)
        if experience.held_out is not None:
            self.apart |= set(experience.images.ids[experience.held_out].tolist())
        self.pending = {}
        self._trust(experience)

    # --- trust --------------------------------------------------------------------------------------------------

    def exemplars(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and classes of the photos that are kept for measuring, and what is stored of them."""
        if self.memory is None or len(self.memory) == 0:
            return torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long), torch.empty(0)
        slots = self.memory.slots(HELD_OUT)
        return self.memory["id"][slots], self.memory["y"][slots], self.stored(slots)

    def look(self, z: Tensor, f: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scores (n, classes) of packed latents, and how near they are to what discriminant analysis counted.

        The second, (n, 2), are the closed form's distances; (n, 0) with learners that have none. f are the
        features that discriminant analysis sees, where they are known.
        """
        closed = self.closed
        if not isinstance(closed, SLDA):
            parts = [self.learner.logits(unpack(some.float())).cpu() for some in z.split(BATCH)]
            return torch.cat(parts)[:, : len(self.names)], torch.empty(len(z), 0)
        parts, nearness = [], []
        for start in range(0, len(z), BATCH):
            whole = unpack(z[start : start + BATCH].float())
            seen = closed.features(whole) if f is None else f[start : start + BATCH].to(closed.model.device)
            parts.append(self.learner.logits(whole, seen).cpu())  # both members and the distances need it
            nearness.append(closed.distances(seen))
        return torch.cat(parts)[:, : len(self.names)], torch.cat(nearness)

    def answered(self, ids: Tensor, z: Callable[[Tensor], Tensor]) -> Tensor:
        """Scores of photos: as of the last fit where they are exemplars, of the latents z(rows) where not."""
        known, logits = self._answered
        rows = _rows(known, ids)
        found, rest = torch.empty(len(ids), len(self.names)), (rows < 0).nonzero().view(-1)
        if len(rest) < len(ids):
            found[rows >= 0] = logits[rows[rows >= 0]]
        if len(rest):
            found[rest] = self.look(z(rest))[0]
        return found

    def _familiarity(self, logits: Tensor, nearness: Tensor) -> Tensor:
        """(n, 1 or 2): the higher, the more an image resembles what was taught.

        The first of the two distances tells near strangers apart (benchmarks/unknown.py chose it), the second one
        images that are like nothing at all.
        """
        return nearness if nearness.shape[1] else ood.max_logit(logits).unsqueeze(1)

    @property
    def closed(self) -> ClosedForm | None:
        """The member in closed form, if there is one."""
        return self.learner.closed_form

    def _trust(self, experience: Experience) -> None:
        """Fit temperature and thresholds to the exemplars, or thresholds to aggregates where none are kept."""
        if self.memory is not None:
            self.fit()
            return
        found, y = self._as_if_never_seen(experience.images)
        gathered = [ood.moments(column, y, len(self.names)) for column in found.unbind(1)]
        known = self.moments or [ood.moments(column[:0], y[:0], 0) for column in found.unbind(1)]
        self.moments = [ood.merged(a, b) for a, b in zip(known, gathered, strict=True)]
        self.fit()

    def _as_if_never_seen(self, images: Images) -> tuple[Tensor, Tensor]:
        """Familiarity of images that were just learned, and their classes.

        What is in the statistics looks far more familiar than other photos of its class, so a few images of each
        class at a time are left out of them; those of which nothing would be left are not scored.
        """
        z, y, closed = latents(self.network, images, context=self.context), images.labels, self.closed
        if not isinstance(closed, SLDA):
            return self._familiarity(*self.look(z)), y
        f = features(closed.model, z.float().unsqueeze(1))[:, 0]
        found, scored = torch.empty(len(y), 2, dtype=torch.float64), closed.counts[y] > 1
        for rows, others in _left_out(closed, f, y, scored, FOLDS):
            found[rows] = others.distances(f[rows])
        return found[scored], y[scored]

    def foretold(self, images: Images) -> tuple[Tensor, Tensor]:
        """Scores by the closed form of photos that it has just learned, as if it had not, and their classes.

        Only of classes that it knows enough photos of to be without half of those; none with other learners.
        """
        closed, y = self.closed, images.labels
        scored = closed.counts[y] >= ENOUGH if isinstance(closed, SLDA) else torch.zeros(len(y), dtype=torch.bool)
        found = torch.empty(len(y), len(self.names))
        if isinstance(closed, SLDA) and bool(scored.any()):
            z = latents(self.network, images, context=self.context)
            f = features(closed.model, z.float().unsqueeze(1))[:, 0]
            for rows, others in _left_out(closed, f, y, scored, 2):
                found[rows] = others.logits(z[rows], f[rows])[:, : len(self.names)]
        return found[scored], y[scored]

    def fit(self) -> None:
        """Temperature and thresholds, from the exemplars or from the aggregates."""
        if self.moments:
            pairs = zip(self.moments, ACCEPT[len(self.moments)], strict=True)
            self.thresholds = [ood.threshold_from_moments(m, accept) for m, accept in pairs]
        ids, y, stored = self.exemplars()
        self._answered, self.exemplar_right = (ids, torch.empty(0, 0)), torch.empty(0, dtype=torch.bool)
        z = self.latents_of(stored)
        f = self._unchanging(ids, z)
        fit_in = self._room_for(f)
        self._features = ids[:fit_in], f[:fit_in]
        if len(y):
            logits, nearness = self.look(z, f.float() if f.numel() else None)
            self._answered, self.exemplar_right = (ids, logits), logits.argmax(1) == y
            self.temperature = calibration.fit_temperature(logits, y)
            columns = self._familiarity(logits, nearness).unbind(1)
            self.thresholds = [ood.threshold(c, a) for c, a in zip(columns, ACCEPT[len(columns)], strict=True)]

    def _unchanging(self, ids: Tensor, z: Tensor) -> Tensor:
        """(n, D) in half precision: features of exemplars by the csf that never learns, each computed once."""
        closed, (known, f) = self.closed, self._features
        if not isinstance(closed, SLDA) or len(ids) == 0:
            return torch.empty(len(ids), 0, dtype=torch.float16)
        rows = _rows(known, ids)
        rest = (rows < 0).nonzero().view(-1)
        if len(rest):
            fresh = features(closed.model, z[rest].float().unsqueeze(1))[:, 0].half()
            rows[rest] = torch.arange(len(f), len(f) + len(rest))
            f = torch.cat([f, fresh]) if len(f) else fresh
        return f[rows]

    def _room_for(self, f: Tensor) -> int:
        """How many features of exemplars fit into the bytes that samples leave; the others are computed anew."""
        number, in_bytes = parse_memory(self.options.memory)
        if not in_bytes or self.memory is None or f.numel() == 0:
            return len(f)
        return max(0, number - self.memory.nbytes) // f[0].nbytes

    # --- answers ------------------------------------------------------------------------------------------------

    def scores(self, images: Images) -> tuple[Tensor, Tensor]:
        """Probabilities (n, classes), and whether each image is like what was taught (n,) bool."""
        z = latents(self.network, images, context=self.context)
        logits, nearness = self.look(z)
        known = torch.ones(len(z), dtype=torch.bool)
        if self.says_unknown:
            columns = self._familiarity(logits, nearness).unbind(1)
            for column, threshold in zip(columns, self.thresholds, strict=True):
                known &= column >= threshold
        return (logits / self.temperature).softmax(1), known

    def answers(self, images: Images) -> list[Answer]:
        """What the model says about each image."""
        probabilities, known = self.scores(images)
        best = probabilities.max(1)
        rows = zip(best.indices.tolist(), best.values.tolist(), known.tolist(), strict=True)
        return [Answer(self.names[i] if ok else "unknown", p, self.names[i], ok) for i, p, ok in rows]

    def stored(self, slots: Tensor) -> Tensor:
        """What the memory stores of some photos: pixels or latents."""
        assert self.memory is not None
        return self.memory["z" if self.memory.store == "latent" else "x"][slots]

    def latents_of(self, stored: Tensor) -> Tensor:
        """Packed latents of what the memory stores of some photos."""
        if self.options.replay == "latent" or len(stored) == 0:
            return stored
        return encode(self.network, len(stored), stored.__getitem__, context=self.context)[:, 0]

    @property
    def says_unknown(self) -> bool:
        """Whether there is anything to judge by: not with few photos, nor after `forget` without stored samples."""
        return any(threshold > -float("inf") for threshold in self.thresholds)

    def describe(self) -> dict[str, Any]:
        """What a version says about itself."""
        memory = self.memory
        return {
            "classes": list(self.names),
            "backbone": self.options.backbone,
            "image_size": self.size,
            "learner": self.options.learner,
            "replay": self.options.replay,
            "lessons": self.lessons,
            "memory": {
                "samples": len(memory) if memory is not None else 0,
                "capacity": memory.capacity if memory is not None else 0,
                "bytes": memory.nbytes + self._features[1].nbytes if memory is not None else 0,
                "exemplars": len(self.exemplar_right),
            },
            "taught": len(self.taught),
            "unknown": self.says_unknown,
        }

    # --- state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Tensors and primitives, one entry for each part that changes at its own pace."""
        state = self.learner.state_dict()
        if self.memory is not None:
            state["memory"] = self.memory.state_dict()
        ids, labels = list(self.taught), list(self.taught.values())
        state["taught"] = {
            "ids": torch.tensor(ids, dtype=torch.long),
            "labels": torch.tensor(labels, dtype=torch.long),
            "pending_ids": torch.tensor(list(self.pending), dtype=torch.long),
            "pending_labels": torch.tensor(list(self.pending.values()), dtype=torch.long),
            "apart": torch.tensor(sorted(self.apart), dtype=torch.long),
        }
        state["exemplars"] = dict(zip(("ids", "features"), self._features, strict=True))
        state["app"] = {
            "options": asdict(self.options),
            "names": self.names,
            "lessons": self.lessons,
            "temperature": self.temperature,
            "thresholds": [t if t > -float("inf") else None for t in self.thresholds],
            "moments": [dict(vars(m)) for m in self.moments],
            "exemplar_right": self.exemplar_right,
            "estimated": self.estimated,
        }
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        if self.memory is not None:
            self.memory.capacity = state["memory"]["capacity"]  # what bytes hold was settled when it was made
        self.learner.load_state_dict(state)
        if self.memory is not None and not self._remembers:
            self.memory.load_state_dict(state["memory"])
        taught, app = state["taught"], state["app"]
        self.taught = dict(zip(taught["ids"].tolist(), taught["labels"].tolist(), strict=True))
        self.apart = set(taught["apart"].tolist())
        self.pending = dict(zip(taught["pending_ids"].tolist(), taught["pending_labels"].tolist(), strict=True))
        self.names, self.lessons, self.temperature = list(app["names"]), app["lessons"], app["temperature"]
        self.thresholds = [-float("inf") if t is None else t for t in app["thresholds"]]
        self.moments = [ood.Moments(**m) for m in app["moments"]]
        self.exemplar_right, self.estimated = app["exemplar_right"], app.get("estimated", False)
        self._answered = torch.empty(0, dtype=torch.long), torch.empty(0, 0)
        if "exemplars" in state:
            self._features = state["exemplars"]["ids"], state["exemplars"]["features"]

    @classmethod
    def from_state(cls, state: dict[str, Any], context: Context | None = None) -> Model:
        """The model of a saved state."""
        model = cls(Options(**state["app"]["options"]), blank=True, context=context)
        try:
            model.load_state_dict(state)
            model._check()
        except (KeyError, IndexError, ValueError, TypeError, RuntimeError) as error:
            raise CorruptState(f"The parts of this model do not belong together ({error!r}).") from error
        return model

    def _check(self) -> None:
        """Whether names, classes and samples belong together: checksums say nothing about that."""
        n, known = len(self.names), getattr(self.learner, "known", set[int]())
        labels = {*known, *self.taught.values(), *self.pending.values()}
        if self.memory is not None:
            labels |= set(self.memory["y"].tolist())
        if len(set(self.names)) < n or not labels <= set(range(n)) or not set(range(n)) <= set(known):
            raise ValueError(f"{n} names for the classes {sorted(labels)}")
        if len(self.exemplar_right) != len(self.exemplars()[0]):
            raise ValueError(f"{len(self.exemplar_right)} answers to {len(self.exemplars()[0])} exemplars")
        ids, f = self._features
        if len(f) != len(ids) or not torch.equal(ids, self.exemplars()[0][: len(ids)]):
            raise ValueError(f"{len(f)} features of {len(self.exemplars()[0])} exemplars")

    def _make_memory(self) -> Memory | None:
        """Room for as many samples as were asked for, or as fit into the bytes."""
        if self.options.replay == "none":
            return None
        store: Literal["raw", "latent"] = "latent" if self.options.replay == "latent" else "raw"
        number, in_bytes = parse_memory(self.options.memory)
        if in_bytes:
            blank = torch.zeros(1, 3, self.size, self.size, dtype=torch.uint8)
            with torch.no_grad():
                sample = blank.numel() if store == "raw" else 2 * pack(self.network.encode(blank)).numel()
            sample += 41  # y, id, key and two hashes of 8 bytes, a split of 1
            # one in four may be an exemplar, of which features of 2 bytes are kept where they fit: 2 D, or D
            features = {"anchored": 2 * self.network.n_features, "slda": self.network.n_features}
            sample += 2 * features.get(self.options.learner, 0) // 4
            number //= sample
            if number < 1:
                raise InvalidValue(
                    f"A memory of {self.options.memory} holds no sample of {sample} bytes; give more."
                )
        return Memory(number, seed=self.options.seed, store=store, dtype=torch.float16)


def _left_out(closed: SLDA, f: Tensor, y: Tensor, scored: Tensor, folds: int) -> Iterator[tuple[Tensor, SLDA]]:
    """Parts of the rows that are to be scored, with some of each class in each, and the statistics without them."""
    fold = torch.empty_like(y)
    for label in y.unique().tolist():
        fold[y == label] = torch.arange(int((y == label).sum())) % folds
    for k in fold[scored].unique().tolist():
        rows = scored & (fold == k)
        yield rows, closed.without(f[rows], y[rows])


def _rows(ids: Tensor, wanted: Tensor) -> Tensor:
    """(n,): where each wanted id stands among the ids; -1 where it does not."""
    row_of = {id_: row for row, id_ in enumerate(ids.tolist())}
    return torch.tensor([row_of.get(id_, -1) for id_ in wanted.tolist()], dtype=torch.long)


def _labelled(images: Images) -> dict[int, int]:
    return dict(zip(images.ids.tolist(), images.labels.tolist(), strict=True))


def unknown_classes(names: Collection[str], wanted: str) -> InvalidValue:
    """The error for a class that the model does not know."""
    return InvalidValue(f"No class is called {wanted!r}; there are {', '.join(sorted(names)) or 'none yet'}.")
