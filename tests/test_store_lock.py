"""The lock of a model directory: one writer, who notices when the directory is taken away."""

import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from faults import interfering_at
from store_helpers import FORGOT, assert_tidy, fill, info, model, same, taught, without_cat, without_name
from triphase.app.store.rewriting import rewrite
from triphase.app.store.schema import LessonMark
from triphase.app.store.versions import Store
from triphase.checkpoint import Checkpoint
from triphase.errors import BadData, Busy, LockLost
from triphase.state import State

pytestmark = pytest.mark.usefixtures("no_fsync")


def test_second_writer_is_told_who_is_at_work(tmp_path: Path) -> None:
    store, other = fill(tmp_path, 1), Store(tmp_path)
    with store.lock():
        store.publish(model(2), info(2), taught(2))  # whoever has the lock is not kept out by it
        for deed in (
            lambda: other.publish(model(3), info(3), taught(3)),
            other.undo,
            lambda: other.prune(1),
            other.discard_work,
        ):
            with pytest.raises(Busy, match=f"Process {os.getpid()} on .* is at work in .*; wait until it is done"):
                deed()
        (tmp_path / "LOCK").write_bytes(b"\xff\x00")
        with pytest.raises(Busy, match="Another process is at work"):
            other.undo()
        assert same(other.load()[0], model(2))
    assert other.undo().number == 1


def test_lock_is_not_shared_between_threads(tmp_path: Path) -> None:
    store = fill(tmp_path, 1)
    refused = []

    def publish() -> None:
        try:
            store.publish(model(2), info(2), taught(2))
        except Busy as error:
            refused.append(error)

    with store.lock():
        thread = threading.Thread(target=publish)
        thread.start()
        thread.join()
    assert len(refused) == 1 and store.version_numbers() == [1]


def test_lock_is_free_after_an_error(tmp_path: Path) -> None:
    store = fill(tmp_path, 1)
    with pytest.raises(ZeroDivisionError), store.lock():
        raise ZeroDivisionError
    with Store(tmp_path).lock():
        pass


# A directory that is taken away from its writer


def move(path: Path) -> None:
    path.rename(path.with_name("moved"))


def replace_by_a_copy(path: Path) -> None:
    shutil.copytree(path, path.with_name("copy"))
    move(path)
    path.with_name("copy").rename(path)


def replace_by_hard_links(path: Path) -> None:
    """As backup programs copy: even LOCK is the same file."""
    shutil.copytree(path, path.with_name("copy"), copy_function=os.link)
    move(path)
    path.with_name("copy").rename(path)


def remove_lock(path: Path) -> None:
    (path / "LOCK").unlink()


def replace_lock(path: Path) -> None:
    remove_lock(path)
    (path / "LOCK").touch()


THEFTS: dict[str, Callable[[Path], object]] = {
    "moved": move,
    "deleted": shutil.rmtree,
    "replaced by a copy": replace_by_a_copy,
    "replaced by hard links": replace_by_hard_links,
    "unlocked": remove_lock,
    "locked by another": replace_lock,
}
WRITES: dict[str, Callable[[Store], object]] = {
    "publish": lambda store: store.publish(model(3), info(3), taught(3)),
    "undo": lambda store: store.undo(),
    "prune": lambda store: store.prune(1),
    "rewrite": lambda store: rewrite(store, without_cat, without_name, FORGOT),
    "discard work": lambda store: store.discard_work(),
    "write lesson": lambda store: store.directory.write_lesson(LessonMark(lesson="0" * 64, parent=2, threads=1)),
    "save checkpoint": lambda store: save_checkpoint(store, {"a": 1}),
}


STRIDES = {"rewrite": len(THEFTS)}  # it has many operations: each theft at a part of them, together at all


def save_checkpoint(store: Store, state: State) -> None:
    checkpoint = Checkpoint(store.work / "state", store.directory.lock)
    checkpoint.load()
    checkpoint.save(state)


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("theft", THEFTS)
def test_a_writer_that_lost_its_directory_writes_nothing(tmp_path: Path, theft: str, write: str) -> None:
    store = fill(tmp_path / "m", 2)
    (store.work / "state").mkdir(parents=True)
    with pytest.raises(LockLost), store.lock():
        THEFTS[theft](store.path)
        before = everything(tmp_path)
        try:
            WRITES[write](store)
        finally:
            store.remove_if_empty()
    assert everything(tmp_path) == before


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions, and a lesson under way."""
    store = fill(tmp_path_factory.mktemp("filled") / "m", 2)
    with store.lock():
        WRITES["write lesson"](store)
        save_checkpoint(store, {"a": 0, "b": 1})
    return store.path


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("theft", THEFTS)
def test_a_directory_that_is_lost_between_a_check_and_a_write_is_noticed_after_it(
    filled: Path, tmp_path: Path, theft: str, write: str
) -> None:
    """At every operation on the disk: what takes its place stays as it is, and the lost directory is whole."""
    stride = STRIDES.get(write, 1)
    n, stolen, before = list(THEFTS).index(theft) % stride + 1 - stride, True, everything(filled)
    while stolen:
        n, stolen = n + stride, False
        store = Store(shutil.copytree(filled, tmp_path / str(n) / "m"))

        def steal(path: Path = store.path) -> None:
            nonlocal stolen, before
            THEFTS[theft](path)
            stolen, before = True, everything(path)

        with suppress(LockLost), store.lock(), interfering_at(n, steal):
            WRITES[write](store)
            assert not stolen, f"nobody noticed at operation {n}"
        moved = store.path.with_name("moved")
        if stolen and "locked" not in theft:
            assert everything(store.path) == before
            assert store.path.exists() == ("replaced" in theft)
        for whole in [moved] if moved.exists() else [store.path] if theft != "deleted" else []:
            assert_whole(Store(whole))
    assert n > 1


def assert_whole(store: Store) -> None:
    """All versions can be loaded, and so can the checkpoint; the next writer finds nothing amiss."""
    with store.lock():
        assert {store.load(number)[1].number for number in store.version_numbers()} >= {store.version().number}
        assert store.history()[-1]["version"] == store.version().number
        if store.directory.read_lesson() is not None:
            assert Checkpoint(store.work / "state").load() in (None, {"a": 0, "b": 1}, {"a": 1})
        store.publish(model(4), info(4), taught(4))
    assert_tidy(store)


def test_a_lost_lock_is_explained(tmp_path: Path) -> None:
    store = fill(tmp_path, 1)
    with store.lock():
        remove_lock(tmp_path)
        with pytest.raises(
            LockLost, match="was moved, deleted or unlocked while .*: nothing more is written. Bring"
        ):
            store.publish(model(2), info(2), taught(2))


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_a_lock_that_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    store = fill(tmp_path, 1)
    (tmp_path / "LOCK").unlink()
    (os.mkfifo if kind == "fifo" else os.mkdir)(tmp_path / "LOCK")
    with pytest.raises(BadData, match="LOCK is not a regular file; remove it"):
        store.undo()


def test_what_was_refused_at_once_leaves_no_directory_and_says_why(tmp_path: Path) -> None:
    store = Store(tmp_path / "m")
    with pytest.raises(BadData, match="no photos"), store.lock():
        try:
            raise BadData("no photos")
        finally:
            store.remove_if_empty()
    assert not store.path.exists()
