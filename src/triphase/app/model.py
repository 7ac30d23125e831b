"""Model: a learner, its memory, the names of its classes and its calibration."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal

import torch
from torch import Tensor, nn

from triphase.app.answers import Calibration, ood_scores
from triphase.app.network import build_network
from triphase.app.occasions import n_alike
from triphase.app.ood import Moments
from triphase.app.options import LEARNERS, ModelOptions, parse_memory
from triphase.app.store.state_schema import check_learner
from triphase.context import Context
from triphase.data.feature_cache import encode, features, pack, unpack
from triphase.data.images import Images
from triphase.data.memory import HELD_OUT, Memory
from triphase.device import explain_out_of_memory, record_name
from triphase.errors import CorruptState, InvalidValue
from triphase.image_size import load_size
from triphase.learners.protocol import Teachable
from triphase.models import SplitClassifier, placed
from triphase.models.engine import engine_of, frozen_form, remember_graphs
from triphase.models.inference import Ensemble

BATCH = 256
NO_IDS = torch.empty(0, dtype=torch.long)


class Model:
    """What a version of a model directory consists of."""

    def __init__(
        self, options: ModelOptions, *, context: Context | None = None, blank: bool = False, size: int | None = None
    ) -> None:
        """`blank`: a state will be loaded, so pre-trained weights need not be read; `size` is its images'."""
        self.options, self.context = options, context or Context(engine="auto")
        self.network: SplitClassifier = placed(build_network(options, blank=blank, size=size), self.context)
        self.network.freeze("llf")
        self.memory = self._make_memory()
        make = LEARNERS[options.learner].make
        self.learner: Teachable = make(self.network, self.memory, seed=options.seed, context=self.context)
        self.names: list[str] = []
        self.lessons = 0
        self.taught: dict[int, int] = {}  # id of a photo -> its class
        self.held_out: set[int] = set()  # ids of those that were held out: they never entered statistics
        self.pending: dict[int, int] = {}  # as `taught`: photos that only a quick lesson has seen so far
        self.calibration = Calibration()
        self.exemplar_correct = torch.empty(0, dtype=torch.bool)  # which exemplars are recognised
        self.exemplar_logits = NO_IDS, torch.empty(0, 0)  # their ids and scores, since the last calibration
        self.exemplar_features = NO_IDS, torch.empty(0, 0, dtype=torch.float16)  # for the closed form
        self.covariance_reestimated = False  # from stored samples, because a class was forgotten

    @property
    def size(self) -> int:
        """The side of the square that photos are scaled to."""
        return self.network.image_size or 32

    @property
    def learner_uses_memory(self) -> bool:
        """Whether the learner itself fills the memory; for the others, samples are stored beside it."""
        return self.memory is not None and getattr(self.learner, "memory", None) is self.memory

    # --- scores -------------------------------------------------------------------------------------------------

    def exemplars(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and classes of the held-out photos, and what is stored of them."""
        if self.memory is None or len(self.memory) == 0:
            return NO_IDS, NO_IDS, torch.empty(0)
        slots = self.memory.slots(HELD_OUT)
        return self.memory["id"][slots], self.memory["y"][slots], self.stored(slots)

    def stored(self, slots: Tensor) -> Tensor:
        """What the memory stores of samples: pixels or latents."""
        assert self.memory is not None
        return self.memory["z" if self.memory.store == "latent" else "x"][slots]

    def latents_of(self, stored: Tensor) -> Tensor:
        """Packed latents of what the memory stores of samples."""
        if self.options.replay == "latent" or len(stored) == 0:
            return stored
        return encode(self.network, len(stored), stored.__getitem__, context=self.context)[:, 0]

    def closed_form_features(self, z: Tensor) -> Tensor:
        """(n, D): features of packed latents for the closed form."""
        closed = self.learner.closed_form
        assert closed is not None
        return features(closed.feature_model, z.float().unsqueeze(1), self.context)[:, 0]

    def scores(self, z: Tensor, f: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Logits (n, classes) and out-of-distribution scores (n, k) of packed latents, as a predictor gives them.

        f are the closed form's features, where they are known.
        """
        ensemble, parts, ood = self.member_scores(z, f)
        return ensemble.weighted(parts), ood

    def member_scores(self, z: Tensor, f: Tensor | None = None) -> tuple[Ensemble, list[Tensor], Tensor]:
        """The learner in inference form, the scores of each member, and the out-of-distribution scores."""
        ensemble, chunks, ood = self.inference(), [], []
        for rows in torch.arange(len(z)).split(BATCH):
            features = None if f is None else f[rows].to(ensemble.device)
            there, distances = ensemble.member_scores(unpack(z[rows].float().to(ensemble.device)), features)
            parts, distances = [scores.cpu() for scores in there], distances.cpu()
            chunks.append(parts)
            ood.append(ood_scores(ensemble.weighted(parts), distances))
        return ensemble, [torch.cat(column) for column in zip(*chunks, strict=True)], torch.cat(ood)

    def inference(self, extra: tuple[Tensor, Tensor] | None = None) -> Ensemble:
        """The learner in inference form, frozen blocks in their fastest form; only the result counts `extra`."""
        ensemble = self.learner.inference(extra)
        with torch.inference_mode():
            z = self.llf(torch.zeros(2, 3, self.size, self.size, device=self.network.device))
        return ensemble.with_csf(lambda csf: frozen_form(csf, z, self.context)).to(self.network.device)

    @property
    def engine(self) -> str:
        """What runs llf, with its version."""
        return engine_of(self.context, self.network.llf)

    @property
    def device(self) -> str:
        """What the network computes on, as it is recorded."""
        return record_name(self.network.device)

    @property
    def llf(self) -> nn.Module:
        """llf in its fastest form, from float pixels 0..255."""
        blank = torch.zeros(2, 3, self.size, self.size, device=self.network.device)
        return frozen_form(self.network.llf, blank, self.context)

    def logits_of(self, ids: Tensor, z: Callable[[Tensor], Tensor]) -> Tensor:
        """Logits of photos: those of the last calibration for exemplars, else of the packed latents z(rows)."""
        known, logits = self.exemplar_logits
        rows = rows_of(known, ids)
        found, rest = torch.empty(len(ids), len(self.names)), (rows < 0).nonzero().view(-1)
        if len(rest) < len(ids):
            found[rows >= 0] = logits[rows[rows >= 0]]
        if len(rest):
            found[rest] = self.scores(z(rest))[0]
        return found

    # --- description --------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """What a version records about the model."""
        memory = self.memory
        return {
            "classes": list(self.names),
            "counts": self.counts(),
            "backbone": self.options.backbone,
            "image_size": int(self.size),
            "learner": self.options.learner,
            "replay": self.options.replay,
            "engine": self.engine,
            "device": self.device,
            "lessons": self.lessons,
            "memory": {
                "samples": len(memory) if memory is not None else 0,
                "capacity": memory.capacity if memory is not None else 0,
                "bytes": memory.nbytes + self.exemplar_features[1].nbytes if memory is not None else 0,
                "exemplars": len(self.exemplar_correct),
                "alike": n_alike(self.network, memory),
            },
            "taught": len(self.taught),
            "unknown": self.calibration.rejects,
        }

    def counts(self) -> list[dict[str, int]]:
        """For each class, the number of photos that were taught, are stored for replay, and are held out."""
        taught = Counter([*self.taught.values(), *self.pending.values()])
        stored = Counter(self.memory["y"].tolist() if self.memory is not None else [])
        exemplars = Counter(self.exemplars()[1].tolist())
        return [
            {"taught": taught[c], "stored": stored[c] - exemplars[c], "exemplars": exemplars[c]}
            for c in range(len(self.names))
        ]

    # --- state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Tensors and primitives, one entry for each part that can change alone."""
        state = self.learner.state_dict()
        if self.memory is not None:
            state["memory"] = self.memory.state_dict()
        state["taught"] = {
            "ids": torch.tensor(list(self.taught), dtype=torch.long),
            "labels": torch.tensor(list(self.taught.values()), dtype=torch.long),
            "pending_ids": torch.tensor(list(self.pending), dtype=torch.long),
            "pending_labels": torch.tensor(list(self.pending.values()), dtype=torch.long),
            "held_out": torch.tensor(sorted(self.held_out), dtype=torch.long),
        }
        state["exemplars"] = dict(zip(("ids", "features"), self.exemplar_features, strict=True))
        calibration = self.calibration
        state["app"] = {
            "options": asdict(self.options),
            "names": self.names,
            "lessons": self.lessons,
            "temperature": calibration.temperature,
            "thresholds": [t if t > -math.inf else None for t in calibration.thresholds],
            "moments": [dict(vars(m)) for m in calibration.moments],
            "exemplar_correct": self.exemplar_correct,
            "covariance_reestimated": self.covariance_reestimated,
        }
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a saved state."""
        if self.memory is not None:
            self.memory.capacity = state["memory"]["capacity"]  # how many samples its bytes hold is decided once
        self.learner.load_state_dict(state)
        if self.memory is not None and not self.learner_uses_memory:
            self.memory.load_state_dict(state["memory"])
        taught, app = state["taught"], state["app"]
        self.taught = dict(zip(taught["ids"].tolist(), taught["labels"].tolist(), strict=True))
        self.held_out = set(taught["held_out"].tolist())
        self.pending = dict(zip(taught["pending_ids"].tolist(), taught["pending_labels"].tolist(), strict=True))
        self.names, self.lessons = list(app["names"]), app["lessons"]
        self.calibration = Calibration(
            app["temperature"],
            tuple(-math.inf if t is None else t for t in app["thresholds"]),
            tuple(Moments(**m) for m in app["moments"]),
        )
        self.exemplar_correct, self.covariance_reestimated = app["exemplar_correct"], app["covariance_reestimated"]
        self.exemplar_logits = NO_IDS, torch.empty(0, 0)
        self.exemplar_features = state["exemplars"]["ids"], state["exemplars"]["features"]

    @classmethod
    def from_state(cls, state: dict[str, Any], context: Context | None = None) -> Model:
        """The model of a saved state."""
        size = load_size(state["inference"]) if "inference" in state else None  # defaults change
        model = cls(ModelOptions(**state["app"]["options"]), context=context, blank=True, size=size)
        remember_graphs(state, model.context)
        try:
            check_learner(state, model.state_dict())
            with explain_out_of_memory("use another --device, or free memory", needed_for="the model"):
                model.load_state_dict(state)
            model._check()
        except CorruptState:
            raise
        except (KeyError, IndexError, ValueError, TypeError, RuntimeError) as error:
            raise CorruptState(f"The parts of this model do not belong together ({error!r}).") from error
        return model

    def _check(self) -> None:
        """Refuse names, classes and samples that do not belong together; checksums say nothing about that."""
        n, known = len(self.names), self.learner.known
        labels = {*known, *self.taught.values(), *self.pending.values()}
        if self.memory is not None:
            labels |= set(self.memory["y"].tolist())
        if len(set(self.names)) < n or not labels <= set(range(n)) or not set(range(n)) <= set(known):
            raise ValueError(f"{n} names for the classes {sorted(labels)}")
        exemplars, _, _ = self.exemplars()
        if len(self.exemplar_correct) != len(exemplars):
            raise ValueError(f"{len(self.exemplar_correct)} answers to {len(exemplars)} exemplars")
        ids, f = self.exemplar_features
        if len(f) != len(ids) or not torch.equal(ids, exemplars[: len(ids)]):
            raise ValueError(f"{len(f)} features of {len(exemplars)} exemplars")

    def _make_memory(self) -> Memory | None:
        """A memory of the requested number of samples or bytes."""
        if self.options.replay == "none":
            return None
        store: Literal["raw", "latent"] = "latent" if self.options.replay == "latent" else "raw"
        number, in_bytes = parse_memory(self.options.memory)
        if in_bytes:
            blank = torch.zeros(1, 3, self.size, self.size, dtype=torch.uint8)
            with torch.no_grad():
                sample = blank.numel() if store == "raw" else 2 * pack(self.network.encode(blank)).numel()
            sample += 41  # y, id, key and two hashes of 8 bytes, a split of 1
            # one in four may be an exemplar, of which features of 2 bytes are kept where they fit
            sample += 2 * LEARNERS[self.options.learner].feature_multiple * self.network.n_features // 4
            number //= sample
            if number < 1:
                raise InvalidValue(
                    f"A memory of {self.options.memory} holds no sample of {sample} bytes; give more."
                )
        return Memory(number, seed=self.options.seed, store=store, dtype=torch.float16)


def rows_of(ids: Tensor, wanted: Tensor) -> Tensor:
    """(n,): where each wanted id stands among the ids; -1 where it does not."""
    row_of = {id_: row for row, id_ in enumerate(ids.tolist())}
    return torch.tensor([row_of.get(id_, -1) for id_ in wanted.tolist()], dtype=torch.long)


def labels_by_id(images: Images) -> dict[int, int]:
    """Id of each image -> its class."""
    return dict(zip(images.ids.tolist(), images.labels.tolist(), strict=True))
