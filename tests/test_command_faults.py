"""Commands that are killed at any operation on the disk: the old model or the new one is there, and no orphans.

Run as a script, this file kills every command again and again (see `faults.die_everywhere`): the slow tests at each
operation, the others at every twentieth. tests/test_store_faults.py always dies at each operation of the store.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from faults import die_everywhere, graves_in
from lessons import SMALL, done, paint, triphase
from store_helpers import assert_tidy
from triphase.app.store.schema import Version
from triphase.app.store.versions import Store
from triphase.app.thumbnails import Thumbnails, add, thumbnail
from triphase.data.sources.files import file_id

COMMANDS: dict[str, list[str]] = {
    "undo": ["undo"],
    "rename": ["rename", "blue", "azure"],
    "forget": ["forget", "green"],
    "forget everywhere": ["forget", "scarlet", "--everywhere"],
    "unteach": ["unteach", "{photos}/one/green/1.png"],
    "teach and prune": ["teach", "{photos}/more", "--force", "--keep", "1"],
}


def arguments(command: str, model: Path, photos: Path) -> list[str]:
    name, *rest = (word.format(photos=photos) for word in COMMANDS[command])
    return [name, str(model), *rest]


@pytest.fixture(
    scope="module", params=[20, pytest.param(1, marks=pytest.mark.slow)], ids=["every twentieth", "every one"]
)
def graves(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models whose writers were killed: folder/command/n, and folder/command/before."""
    folder = tmp_path_factory.mktemp("graves")
    for colour in ("red", "green", "blue"):
        paint(folder / "photos" / "one" / colour, colour, range(6))
    paint(folder / "photos" / "more" / "green", "green", range(200, 203))
    model = folder / "model"
    done("teach", model, folder / "photos" / "one", *SMALL, "--learner", "slda")
    done("rename", model, "red", "scarlet")
    add(model, {file_id(photo): thumbnail(photo) for photo in (folder / "photos" / "one").rglob("*.png")})
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, str(folder), str(request.param)], check=True, env=environment)
    return folder


def contents(model: Path) -> dict[int, Version]:
    """What each version holds, whenever it was made; all of it can be loaded."""
    store = Store(model)
    versions = {number: store.load(number)[1] for number in store.version_numbers()}
    return {number: v.model_copy(update={"created": ""}) for number, v in versions.items()}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_killed_leaves_the_old_model_or_the_new_one(graves: Path, command: str) -> None:
    *killed, finished = graves_in(graves / command)
    before, after = contents(graves / command / "before"), contents(finished)
    old, new = (Store(path).version().number for path in (graves / command / "before", finished))
    outcomes = set()
    for path in killed:
        store = Store(path)
        number = store.version().number
        assert number in (old, new)
        found = contents(path)
        outcomes.add(number == new and found[number] == after[new])
        assert all(version in (before.get(n), after.get(n)) for n, version in found.items())
        answer = triphase("status", path, "--json")
        assert answer.status == 0 and answer.document()["version"] == number
        with store.lock():
            pass
        assert_tidy(store)
    assert False in outcomes and (True in outcomes or len(killed) < 10)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_same_command_again_finishes_the_work(graves: Path, command: str, tmp_path: Path) -> None:
    *killed, finished = graves_in(graves / command)
    expected = set(Store(finished).version().info["classes"])
    for path in killed:
        model = shutil.copytree(path, tmp_path / path.name)
        done_already = Store(model).version().info["classes"] != ["blue", "green", "scarlet"]
        answer = triphase(*arguments(command, model, graves / "photos"))
        assert answer.status == 0 or done_already or command == "undo" or "nothing to" in answer.err, answer.err
        if command not in ("undo", "unteach", "teach and prune"):
            assert set(Store(model).version().info["classes"]) == expected
        assert_tidy(Store(model))
        if command == "forget everywhere":
            documents = [model / "CURRENT", model / "history.jsonl", *(model / "versions").iterdir()]
            assert not any(re.search(r"\b(scarlet|red)\b", file.read_text()) for file in documents)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_thumbnail_outlives_its_photo(graves: Path, command: str) -> None:
    """Not even for a moment: thumbnails go before the photos do."""
    before = Thumbnails.open(graves / command / "before")
    assert len(before) == 18
    for path in graves_in(graves / command):
        left = Thumbnails.open(path)
        taught = Store(path).load(parts=("taught",))[0]["taught"]
        assert set(left.pictures) <= set(taught["ids"].tolist())
        assert left.note == "" and all(left.get(id_) == before.get(id_) for id_ in left.pictures)


def main(folder: Path, every: int) -> None:
    from triphase.cli import main as command_line

    def call(words: list[str]) -> None:
        sys.argv = ["triphase", *words]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                command_line()
            except SystemExit as end:
                assert not end.code, words

    torch.set_num_threads(1)
    call(["rename", str(shutil.copytree(folder / "model", folder / "imported")), "blue", "azure"])
    import scipy.optimize  # noqa: F401  # here once, and not in each process that is forked

    import triphase.cli.teach  # noqa: F401

    Image.init()
    for command in COMMANDS:
        shutil.copytree(folder / "model", folder / command / "before")

        def do(model: Path, command: str = command) -> None:
            call(arguments(command, model, folder / "photos"))

        die_everywhere(folder / command, do, every)


if __name__ == "__main__":
    os.fsync = lambda fd: None
    main(Path(sys.argv[1]), int(sys.argv[2]))
