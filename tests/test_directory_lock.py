"""The lock of a directory: one writer, and a writer that died is not in the way."""

import subprocess
import sys
from pathlib import Path

import pytest

from triphase.directory_lock import locked
from triphase.errors import Busy


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
        with pytest.raises(Busy, match="Another process is at work"), locked(tmp_path):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with locked(tmp_path):
        assert (tmp_path / "LOCK").exists()
