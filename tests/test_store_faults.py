"""Death at any file operation: the old model or the new one is there, and the next writer tidies up.

Run as a script, this file dies at every write of every operation (see `die_everywhere`).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture(scope="module", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """What fsync is for shows only where the power fails; the order of the calls is checked by dying at each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


DEEDS: dict[str, Callable[[Store], Any]] = {
    "first": lambda store: store.publish(model(1), info(1), taught(1)),
    "publish": lambda store: store.publish(model(5), info(5), taught(5)),
    "undo": lambda store: store.undo(),
    "prune": lambda store: store.prune(2),
    "rewrite": lambda store: rewrite(store, without_cat, without_name, FORGOT),
}


def die_at(n: int) -> None:
    """End this process at the n-th call that touches the disk; the end of what it was writing is lost."""
    calls = 0
    for name in ("fsync", "replace", "unlink", "rmdir"):
        real = getattr(os, name)

        def counted(*args: Any, name: str = name, real: Callable[..., Any] = real, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == n:
                if name == "fsync" and os.readlink(f"/proc/self/fd/{args[0]}").endswith((".tmp", ".jsonl")):
                    os.truncate(f"/proc/self/fd/{args[0]}", os.fstat(args[0]).st_size - 7)
                os._exit(9)
            return real(*args, **kwargs)

        setattr(os, name, counted)


def prepared(path: Path, deed: str) -> Store:
    """Versions 1 to 4, the last one undone, with a lesson under way; nothing at all before the first one."""
    if deed == "first":
        return Store(path)
    store = fill(path, 4)
    store.undo()
    store.work.mkdir()
    (store.work / "lesson.json").write_text("{}")
    return store


def die_everywhere(folder: Path) -> None:
    """Do each deed again and again, and die a little later each time, until it is done."""
    for deed, do in DEEDS.items():
        prepared(folder / deed / "before", deed)
        status, n = -1, 0
        while status != 0:
            n += 1
            path = folder / deed / str(n)
            if deed != "first":
                shutil.copytree(folder / deed / "before", path)
            child = os.fork()
            if child == 0:
                die_at(n)
                do(Store(path))
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert status in (0, 9)


@pytest.fixture(scope="module")
def graves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graves")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, str(folder)], check=True, env=environment)
    return folder


@pytest.mark.parametrize("deed", DEEDS)
def test_killed_at_any_write_the_old_model_or_the_new_one_is_there(graves: Path, deed: str) -> None:
    outcomes = set()
    places = sorted((p for p in (graves / deed).iterdir() if p.name != "before"), key=lambda p: int(p.name))
    for path in places:
        store = Store(path)
        version = store.current()
        old = version is None if deed == "first" else version is not None and version.number == 3
        if version is not None:
            state = store.load()[0]
            if deed == "rewrite":
                old = version.info["classes"] == ["cat", "dog"]
                expected = model(3) if old else state_without_cat(model(3))
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
        assert [event["version"] for event in events][:5] == [1, 2, 3, 4, 3][: len(events)]
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
        assert store.version_numbers() == [1, 2, 3, 4] and not store.work.exists()
        assert not traces_of_cat(store)
        assert store.history()[-1]["event"] == "forgot"


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as no_waiting:
        no_waiting.setattr(os, "fsync", lambda descriptor: None)
        die_everywhere(Path(sys.argv[1]))
