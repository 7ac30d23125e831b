"""check_learner: the properties that every learner must have. Needs no test framework.

from triphase.testing import check_learner
check_learner(MyLearner)                                     # called as MyLearner(model, memory)
check_learner(lambda model, memory: MyLearner(model, memory, strength=0.3))
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from triphase import state as files
from triphase.data.feature_cache import latents, unpack
from triphase.data.images import Images
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import UNLABELLED, Experience, Stream, stream
from triphase.errors import InvalidValue
from triphase.learners.protocol import Learner, Step, Tick, ignore
from triphase.models import Normalize, SplitClassifier, linear_head
from triphase.randomness import generator

Make = Callable[[SplitClassifier, Memory], Learner]
Position = tuple[int, str, int, int]  # experience, phase, epoch, step

MEMBERS = ("model", "context", "learn", "logits", "state_dict", "load_state_dict")
NOT_PLAIN = "holds something else than tensors and primitives"
FIRST = Recipe(epochs=3, lr=0.02, n_mbe=8, augment="flip")
REST = Recipe(epochs=3, lr=0.02, n_mbe=8, n_mbr=8, augment="flip")


def check_learner(make: Make) -> None:
    """Run every check; an AssertionError says which property does not hold.

    >>> from triphase import FineTune
    >>> check_learner(FineTune)
    """
    for check in CHECKS:
        check(make)


def check_members(make: Make) -> None:
    """The learner has every member of the protocol."""
    learner = make(tiny_model(), Memory(12, seed=0))
    missing = [name for name in MEMBERS if getattr(learner, name, None) is None]
    assert not missing, f"the learner has no {', '.join(missing)}"


def check_same_seed_same_weights(make: Make) -> None:
    """Two learners with the same seed end with the same weights and scores, whatever torch's generator does."""
    ends = []
    for global_seed in (1, 2):
        learner = make(tiny_model(), Memory(12, seed=0))
        torch.manual_seed(global_seed)
        for experience in tiny_stream().experiences:
            _learn(learner, experience)
        ends.append(_end(learner))
    _assert_equal(ends[0], ends[1], "two runs with the same seed differ")


def check_resumed_equals_uninterrupted(make: Make) -> None:
    """Killed after any step of any experience and continued from a saved state, it ends bit for bit the same.

    It does what was left to do, and nothing twice.
    """
    experiences = tiny_stream().experiences
    learner = make(tiny_model(), Memory(12, seed=0))
    snapshots: list[tuple[int, int, dict[str, Any]]] = []  # experience, steps taken in all, state
    positions: list[Position] = []
    for experience in experiences:
        snapshots.append((experience.index, len(positions), _through_disk(learner.state_dict())))

        def tick(step: Step, index: int = experience.index) -> None:
            positions.append(_position(index, step))
            snapshots.append((index, len(positions), _through_disk(learner.state_dict())))

        _learn(learner, experience, tick)
    expected = _end(learner)
    for index, taken, snapshot in snapshots:
        where = f"continued after step {taken}, in experience {index}"
        again = make(tiny_model(), Memory(12, seed=0))
        again.load_state_dict(snapshot)
        left: list[Position] = []
        for experience in experiences[index - 1 :]:
            i = experience.index
            _learn(again, experience, lambda step, i=i, left=left: left.append(_position(i, step)))  # type: ignore[misc]
        assert left == positions[taken:], f"{where}, it took the steps {left} instead of {positions[taken:]}"
        _assert_equal(_end(again), expected, f"{where}, the end differs")


def check_experience_is_not_mutated(make: Make) -> None:
    """The learner leaves pixels, labels, ids and classes of every experience as they were."""
    learner, experiences = make(tiny_model(), Memory(12, seed=0)), tiny_stream().experiences
    before = [_content(experience) for experience in experiences]
    for learned in experiences:
        _learn(learner, learned)
        for experience, content in zip(experiences, before, strict=True):
            changed = [name for name, now in _content(experience).items() if not torch.equal(now, content[name])]
            assert not changed, f"learning changed the {', '.join(changed)} of experience {experience.index}"


def check_frozen_llf_does_not_move(make: Make) -> None:
    """A pre-trained llf is bit-identical afterwards, running statistics included."""
    learner = make(tiny_model(), Memory(12, seed=0))
    before = copy.deepcopy(learner.model.llf.state_dict())
    for experience in tiny_stream().experiences:
        _learn(learner, experience)
    _assert_equal(dict(learner.model.llf.state_dict()), dict(before), "llf moved")


def check_any_experience_is_accepted(make: Make) -> None:
    """Repetition only, one class, one image: after each, known classes have finite scores and others none."""
    for n_classes in (0, 5):  # a head that grows, and a fixed one with room to spare
        _check_lessons(make(tiny_model(n_classes), Memory(12, seed=0)))


def _check_lessons(learner: Learner) -> None:
    images = tiny_images()
    seen: set[int] = set()
    for index, classes in enumerate([[0, 1], [0, 1], [2], [1, 2]], start=1):
        rows = torch.isin(images.labels, torch.tensor(classes)).nonzero().view(-1)[index::3]
        _learn(learner, Experience(index, images.select(rows)))
        seen |= set(classes)
        _assert_scores(learner, seen)
    _learn(learner, Experience(5, images.select((images.labels == 3).nonzero().view(-1)[:1])))
    _assert_scores(learner, seen | {3})


def check_held_out_images_teach_no_class(make: Make) -> None:
    """A class is learned from training images: held-out images alone make no class known and unlearn none."""
    images, learner = tiny_images(), make(tiny_model(), Memory(12, seed=0))
    lessons = [((0, 1), 2), ((1, 2), 0)]  # classes to train on, and the class whose images are all held out
    seen: set[int] = set()
    for index, (classes, held_out) in enumerate(lessons, start=1):
        rows = torch.isin(images.labels, torch.tensor([*classes, held_out])).nonzero().view(-1)[index::2]
        part = images.select(rows)
        _learn(learner, Experience(index, part, part.labels == held_out))
        seen |= set(classes)
        _assert_scores(learner, seen)


def check_unlabelled_images_teach_no_class(make: Make) -> None:
    """Images without a label make no class known, and no sample of the memory."""
    images, learner = tiny_images(), make(tiny_model(), Memory(40, seed=0))
    seen: set[int] = set()
    for index, (classes, hidden) in enumerate([((0, 1), 2), ((1, 2), 0)], start=1):
        rows = torch.isin(images.labels, torch.tensor([*classes, hidden])).nonzero().view(-1)[index::2]
        part = images.select(rows)
        part.labels[part.labels == hidden] = UNLABELLED
        _learn(learner, Experience(index, part))
        seen |= set(classes)
        _assert_scores(learner, seen)
        stored = getattr(learner, "memory", None)
        without = part.ids[part.labels == UNLABELLED]
        assert stored is None or not torch.isin(stored["id"], without).any(), "an image without a label is stored"


def check_trainable_all_is_obeyed_or_refused(make: Make) -> None:
    """With `Recipe.trainable = "all"` llf learns, or the learner refuses and leaves the model as it was."""
    learner = make(tiny_model(), Memory(12, seed=0))
    llf, before = copy.deepcopy(learner.model.llf.state_dict()), copy.deepcopy(_weights(learner))
    steps: list[Step] = []
    try:
        learner.learn(tiny_stream().experiences[0], replace(FIRST, trainable="all"), steps.append)
    except InvalidValue:
        _assert_equal(_weights(learner), before, "a refused recipe changed the model")
        return
    moved = any(not torch.equal(llf[name], tensor) for name, tensor in learner.model.llf.state_dict().items())
    assert moved or not steps, "trainable='all' was ignored: train llf, or refuse with InvalidValue"


def check_logits_leave_the_learner_alone(make: Make) -> None:
    """Evaluating changes no weight, no statistic and no mode."""
    learner = make(tiny_model(), Memory(12, seed=0))
    _learn(learner, tiny_stream().experiences[0])
    before, modes = copy.deepcopy(_weights(learner)), [part.training for part in learner.model.modules()]
    assert torch.equal(_scores(learner), _scores(learner)), "two evaluations differ"
    after = [part.training for part in learner.model.modules()]
    assert after == modes, "logits() changed the mode of the model or of a part of it"
    _assert_equal(_weights(learner), before, "logits() changed the model")


# What breaks several properties is found first by the check that names it.
CHECKS: tuple[Callable[[Make], None], ...] = (
    check_members,
    check_experience_is_not_mutated,
    check_frozen_llf_does_not_move,
    check_any_experience_is_accepted,
    check_held_out_images_teach_no_class,
    check_unlabelled_images_teach_no_class,
    check_trainable_all_is_obeyed_or_refused,
    check_logits_leave_the_learner_alone,
    check_same_seed_same_weights,
    check_resumed_equals_uninterrupted,
)


def tiny_images(n_classes: int = 4, per_class: int = 9) -> Images:
    """Coloured noise, 6 x 6 pixels; each class has its own mean picture."""
    draw = generator(0, "tiny images")
    labels = torch.arange(n_classes).repeat(per_class)
    means = torch.rand(n_classes, 3, 6, 6, generator=draw) * 255
    noise = torch.randn(len(labels), 3, 6, 6, generator=draw) * 20
    pixels = (means[labels] + noise).clamp(0, 255).to(torch.uint8)
    return Images.from_array(pixels, labels, torch.arange(len(labels)))


def tiny_stream() -> Stream:
    """Two experiences of two classes; the second one repeats a class and brings a new one."""
    images = tiny_images()
    one = torch.isin(images.labels, torch.tensor([0, 1])).nonzero().view(-1)[:13]
    two = torch.isin(images.labels, torch.tensor([1, 2])).nonzero().view(-1)
    two = two[~torch.isin(two, one)]
    return stream([images.select(one), images.select(two)], images, [f"class {c}" for c in range(4)], n_classes=4)


def tiny_model(n_classes: int = 4) -> SplitClassifier:
    """A network with BatchNorm in both blocks, small enough for hundreds of steps a second."""
    llf = nn.Sequential(
        Normalize((127.5,) * 3, (64.0,) * 3),
        nn.Conv2d(3, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
    )
    csf = nn.Sequential(
        nn.Conv2d(6, 16, 3, stride=2, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    draw = generator(0, "tiny model")
    with torch.no_grad():
        for parameter in [*llf.parameters(), *csf.parameters()]:
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=draw) / parameter[0].numel() ** 0.5)
    return SplitClassifier(llf, csf, linear_head(16, n_classes), image_size=6)


def _learn(learner: Learner, experience: Experience, tick: Tick = ignore) -> None:
    learner.learn(experience, FIRST if experience.index == 1 else REST, tick)


def _content(experience: Experience) -> dict[str, Tensor]:
    """What a learner must not change, copied."""
    images, classes = experience.images, torch.tensor(experience.classes)
    pixels = images.read(torch.arange(len(images)))
    return {"pixels": pixels, "labels": images.labels.clone(), "ids": images.ids.clone(), "classes": classes}


def _position(index: int, step: Step) -> Position:
    return index, step.phase, step.epoch, step.step


def _through_disk(state: dict[str, Any]) -> dict[str, Any]:
    """What is left of a state after saving and loading it: tensors and primitives, nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        try:
            files.save(path, copy.deepcopy(state))
        except TypeError as error:
            raise AssertionError(f"state_dict() {NOT_PLAIN}: {error}") from error
        return files.load(path)


def _weights(learner: Learner) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}


def _end(learner: Learner) -> dict[str, Tensor]:
    return {**_weights(learner), "scores of the test images": _scores(learner)}


def _scores(learner: Learner) -> Tensor:
    scores = learner.logits(z := unpack(latents(learner.model, tiny_images())))
    assert isinstance(scores, Tensor), f"logits() returned a {type(scores).__name__} instead of a tensor"
    found, wanted = tuple(scores.shape), (len(z), learner.model.n_classes)
    assert found == wanted, f"logits() returned the shape {found} instead of (n, n_classes) = {wanted}"
    return scores


def _assert_scores(learner: Learner, seen: set[int]) -> None:
    scores = _scores(learner)
    unseen = [c for c in range(scores.shape[1]) if c not in seen]
    assert scores[:, sorted(seen)].isfinite().all(), f"classes {sorted(seen)} were learned but have no finite score"
    assert (scores[:, unseen] == -torch.inf).all(), f"classes {unseen} were never learned but have a score"


def _assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor], message: str) -> None:
    assert found.keys() == expected.keys(), f"{message}: other tensors"
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), f"{message}: {name}"
