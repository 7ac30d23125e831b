"""Lists of files, and their ids."""

from pathlib import Path

import pytest
import torch

from triphase.data.sources.files import LazyPaths, file_id, path_ids
from triphase.errors import BadData


def test_lazy_paths_behave_like_a_list_of_paths() -> None:
    files = LazyPaths(Path("root"), ["a/1.png", "b/2.png", "b/3.png"])
    assert list(files[1:]) == [Path("root/b/2.png"), Path("root/b/3.png")]
    assert list(files) == [Path("root/a/1.png"), *files[1:]]


def test_ids_stay_what_they_were_in_models_and_runs_that_exist(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"content")
    assert file_id(tmp_path / "x") == -6653057499725739343
    assert path_ids(["train/n01/n01_1.JPEG"]).tolist() == [-3054231612038892491]
    assert path_ids([]).dtype == torch.long


def test_a_file_that_cannot_be_read_has_no_id(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"gone cannot be read \(No such file or directory\)"):
        file_id(tmp_path / "gone")
