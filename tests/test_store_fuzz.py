"""Models with valid checksums and nonsense inside: a sentence and exit 1, or an answer; no traceback, no hang."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest

from command import Answer
from model_world import make_world, triphase
from mutations import KINDS

EACH = {"document": 130, "history": 60, "part": 220, "swap": 60, "kind": 90, "lesson": 40}  # mutations
CLASSES = {"red", "scarlet", "green", "blue", "yellow", "azure", "unknown"}
COMMANDS: dict[str, list[str]] = {
    "status": [],
    "classes": [],
    "history": [],
    "predict": ["{test}/green/100.png"],
    "evaluate": ["{test}"],
    "undo": [],
    "rename": ["blue", "azure"],
    "forget": ["green"],
    "forget everywhere": ["scarlet", "--everywhere"],
    "unteach": ["{one}/green/1.png"],
    "teach": ["{more}", "--force"],
}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An anchored model that stores latents, and one that stores no sample."""
    options = [(), ("--learner", "slda", "--replay", "none")]
    return [make_world(tmp_path_factory.mktemp("world"), *chosen) for chosen in options]


def call(command: str, world: Path, model: Path, *more: str) -> Answer:
    folders = {name: world / name for name in ("one", "two", "more", "test")}
    arguments = [argument.format(**folders) for argument in COMMANDS[command]]
    return triphase(command.split()[0], model, *arguments, *more)


def assert_sane(answer: Answer, json: bool) -> None:
    """A sentence and exit 1, or a sane answer."""
    errors = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    assert (answer.status, len(errors)) in ((0, 0), (1, 1)), answer
    assert "Traceback" not in answer.err and not re.search(r"\bnan\b", answer.out + answer.err), answer
    assert "\x1b" not in answer.out + answer.err, answer
    if json:
        document = answer.document()
        for row in document.get("answers", []):
            assert row["label"] in CLASSES and 0 <= row["probability"] <= 1, row


def fuzz(worlds: list[Path], folder: Path, kind: str, first: int, n: int) -> list[int]:
    """How often each exit status came, over n mutations."""
    statuses = [0, 0]
    for seed in range(first, first + n):
        draw = random.Random(f"{kind} {seed}")
        world, model = draw.choice(worlds), folder / "model"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(world / "model", model)
        what = KINDS[kind](model, draw)
        reading, writing = list(COMMANDS)[:5], list(COMMANDS)[5:]
        for command in [*draw.sample(reading, 2), draw.choice(writing)]:
            json = draw.random() < 0.5
            try:
                answer = call(command, world, model, *["--json"] * json)
                assert_sane(answer, json)
            except BaseException as error:
                raise AssertionError(f"{kind} {seed} ({what}), then {command}: {error!r}") from error
            statuses[answer.status] += 1
    return statuses


@pytest.mark.slow
@pytest.mark.parametrize("kind", EACH)
def test_nonsense_in_a_model_gets_a_sentence_or_an_answer(worlds: list[Path], tmp_path: Path, kind: str) -> None:
    passed, refused = fuzz(worlds, tmp_path / "fuzz", kind, 0, EACH[kind])
    assert passed > 0 and (refused > 0 or kind == "lesson")  # a lesson that cannot be continued starts again
    assert sum(EACH.values()) >= 500


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_works_on_a_model_that_nobody_touched(
    worlds: list[Path], tmp_path: Path, command: str
) -> None:
    for i, world in enumerate(worlds):
        model = shutil.copytree(world / "model", tmp_path / str(i))
        answer = call(command, world, model)
        assert_sane(answer, False)
        assert answer.status == 0, answer.err
