"""The lock of a model directory: one writer, who notices when the directory is taken away."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from store_helpers import (
    fill,
    info,
    model,
    same,
    taught,
)
from triphase.app.store.versions import Store
from triphase.errors import Busy


@pytest.fixture(scope="module", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """What fsync is for shows only where the power fails; the order of the calls is checked by dying at each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


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
