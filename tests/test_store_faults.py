"""Death at any file operation: the old model or the new one is there, and the next writer tidies up.

Run as a script, this file dies at every write of every operation (see `faults.die_everywhere`).
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults import die_everywhere, graves_in
from store_helpers import (
    FORGOT,
    assert_tidy,
    fill,
    info,
    model,
    same,
    state_without_cat,
    taught,
    traces_of_cat,
    without_cat,
    without_name,
)
from triphase.app.store.rewriting import rewrite
from triphase.app.store.versions import Store

pytestmark = pytest.mark.usefixtures("no_fsync")


DEEDS: dict[str, Callable[[Store], Any]] = {
    "first": lambda store: store.publish(model(1), info(1), taught(1)),
    "publish": lambda store: store.publish(model(5), info(5), taught(5)),
    "undo": lambda store: store.undo(),
    "prune": lambda store: store.prune(2),
    "rewrite": lambda store: rewrite(store, without_cat, without_name, FORGOT),
}


def newest(deed: str) -> int:
    """How many versions there are beforehand; each of them is rewritten, operation by operation."""
    return 3 if deed == "rewrite" else 4


def prepared(path: Path, deed: str) -> Store:
    """A few versions, the last one undone, with a lesson under way; nothing at all before the first one."""
    if deed == "first":
        return Store(path)
    store = fill(path, newest(deed))
    store.undo()
    store.work.mkdir()
    (store.work / "lesson.json").write_text("{}")
    return store


@pytest.fixture(scope="module")
def graves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graves")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, str(folder)], check=True, env=environment)
    return folder


@pytest.mark.parametrize("deed", DEEDS)
def test_killed_at_any_write_the_old_model_or_the_new_one_is_there(graves: Path, deed: str) -> None:
    outcomes = set()
    places = graves_in(graves / deed)
    for path in places:
        store = Store(path)
        version = store.current()
        old = version is None if deed == "first" else version is not None and version.number == newest(deed) - 1
        if version is not None:
            state = store.load()[0]
            if deed == "rewrite":
                old = version.info["classes"] == ["cat", "dog"]
                expected = model(2) if old else state_without_cat(model(2))
            else:
                expected = model(version.info["lessons"])
            assert same(state, expected)
        outcomes.add(old)
        for number in store.version_numbers():
            state, kept = store.load(number)
            new = deed == "rewrite" and kept.info["classes"] == ["dog"]
            lesson = kept.info["lessons"]
            assert same(state, state_without_cat(model(lesson)) if new else model(lesson))
        events = store.history()
        course = [*range(1, newest(deed) + 1), newest(deed) - 1]
        assert [event["version"] for event in events][: len(course)] == course[: len(events)]
        assert not events or version is not None and events[-1]["version"] == version.number
        if deed == "rewrite" and not old:  # only removing remains, and any writer does that
            with store.lock():
                assert not traces_of_cat(store)
        assert_good_end(store, deed)
    assert len(places) > 3
    assert outcomes == ({True} if deed == "prune" else {True, False})


def assert_good_end(store: Store, deed: str) -> None:
    """The same deed again finishes the work, and nothing of the dead writer is left."""
    before = store.current()
    with store.lock():
        pass
    assert_tidy(store)
    DEEDS[deed](store)
    state, version = store.load()
    assert_tidy(store)
    if deed in ("first", "publish"):
        assert version.number > max(4 * (deed == "publish"), before.number if before else 0) and same(
            state, model(version.info["lessons"])
        )
        assert version.parent == (before.number if before else None)
        assert store.history()[-1]["version"] == version.number
    elif deed == "undo":
        assert before is not None and version.number == before.number - 1
    elif deed == "prune":
        assert store.version_numbers() == [2, 3] and store.publish(model(6), info(6), taught(6)).number == 5
    else:
        assert store.version_numbers() == [1, 2, 3] and not store.work.exists()
        assert not traces_of_cat(store)
        assert store.history()[-1]["event"] == "forgot"


def main(folder: Path) -> None:
    fill(folder / "imported", 1)  # here once, and not in each process that is forked
    for deed, do in DEEDS.items():
        prepared(folder / deed / "before", deed)
        (folder / deed).mkdir(exist_ok=True)

        def call(path: Path, do: Callable[[Store], Any] = do) -> None:
            do(Store(path))

        die_everywhere(folder / deed, call)


if __name__ == "__main__":
    os.fsync = lambda fd: None
    main(Path(sys.argv[1]))
