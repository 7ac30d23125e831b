"""The lock of a directory: one writer, and a writer that died is not in the way."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from triphase.directory_lock import locked
from triphase.errors import BadData, Busy


def test_a_second_writer_of_a_directory_is_refused_and_a_dead_one_is_not_in_the_way(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys; from triphase.directory_lock import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(Busy, match=f"Process {holder.pid} on .* is at work"), locked(tmp_path):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with locked(tmp_path):
        assert (tmp_path / "LOCK").exists()


@pytest.mark.parametrize("theft", ["removed", "replaced", "moved", "linked", "copied by hard links"])
def test_a_lock_knows_whether_it_is_still_held(tmp_path: Path, theft: str) -> None:
    directory = tmp_path / "d"
    with locked(directory) as lock:
        assert lock.is_held()
        if theft == "moved":
            directory.rename(tmp_path / "elsewhere")
        elif theft == "copied by hard links":
            directory.rename(tmp_path / "elsewhere")
            shutil.copytree(tmp_path / "elsewhere", directory, copy_function=os.link)
        else:
            (directory / "LOCK").rename(tmp_path / "lock")
        if theft == "replaced":
            (directory / "LOCK").touch()
        if theft == "linked":
            (directory / "LOCK").symlink_to(tmp_path / "lock")
        assert not lock.is_held()


def test_a_lock_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "LOCK")
    with pytest.raises(BadData, match="LOCK is not a regular file; remove it"), locked(tmp_path):
        pass
