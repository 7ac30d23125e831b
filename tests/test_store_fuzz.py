"""Models with valid checksums and nonsense inside: a sentence and exit 1, or an answer; no traceback, no hang."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from mutations import COMMANDS, KINDS, assert_sane, assert_sane_document, call, make_world

EACH = {"document": 130, "history": 60, "part": 220, "swap": 60, "kind": 90, "lesson": 40}  # mutations


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An anchored model that stores latents, and one that stores no sample."""
    options = [(), ("--learner", "slda", "--replay", "none")]
    return [make_world(tmp_path_factory.mktemp("world"), *chosen) for chosen in options]


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
                (assert_sane_document if json else assert_sane)(answer)
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
        assert_sane(answer)
        assert answer.status == 0, answer.err
