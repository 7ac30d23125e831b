"""CORe50: a miniature, and the real file lists where they are at hand."""

import os
import shutil
import tarfile
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dataset_folders import empty, found, look, touch_core50
from triphase.data.images import Images
from triphase.data.sources import (
    core50_41_order,
    core50_classes,
    core50_nicv2,
    nicv2_lists,
    nicv2_test,
)
from triphase.data.sources.core50 import frames_of
from triphase.data.streams import stream
from triphase.errors import BadData

SHARED = Path(os.environ.get("TRIPHASE_SHARED", Path(__file__).parents[2] / "shared")) / "data"
LISTS = SHARED / "core50_nicv2_filelists.tar.xz"
needs_lists = pytest.mark.skipif(not LISTS.is_file(), reason=f"the CORe50 file lists are not in {SHARED}")


def everything(images: Images) -> torch.Tensor:
    return images.read(torch.arange(len(images)))


def picture(path: Path, grey: int = 0, side: int = 6) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (side, side), grey).save(path)
    return path


def write_core50(root: Path) -> Path:
    """Two objects in all eleven sessions, two frames each; NICv2 lists with twelve experiences."""
    frames = [
        (f"s{s}/o{o}/C_{s:02}_{o:02}_{f:03}.png", o - 1) for s in range(1, 12) for o in (1, 7) for f in range(2)
    ]
    for grey, (name, _) in enumerate(frames):
        picture(root / "core50_128x128" / name, grey)
    lists = root / "sIII_v2_12" / "run0"
    lists.mkdir(parents=True)
    train = [frame for frame in frames if frame[0].split("/")[0] not in ("s3", "s7", "s10")]
    for batch in range(12):
        lines = "".join(f"{name} {label}\n" for name, label in train[batch::12])
        (lists / f"train_batch_{batch}_filelist.txt").write_text(lines)  # 10 sorts before 2 as text
    test = [frame for frame in frames if frame not in train]
    (lists / "test_filelist.txt").write_text("".join(f"{name} {label}\n" for name, label in test))
    return root


def test_core50_experiences_come_in_numerical_order(tmp_path: Path) -> None:
    root = write_core50(tmp_path)
    experiences, test, names = core50_nicv2(root, 0, size=5, n=12)
    assert len(experiences) == 12 and len(test) == 12
    assert len(names) == 50 and (names[0], names[6], names[49]) == (
        "plug_adapter1",
        "mobile_phone2",
        "remote_control5",
    )
    _, every, _ = core50_classes(root, 5, complete=False)
    greys = [everything(experience)[:, 0, 0, 0].tolist() for experience in experiences]
    assert [first for first, *_ in greys] == [0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15]
    assert sorted(test.ids.tolist()) == sorted(every.ids.tolist())
    assert {label for experience in experiences for label in experience.labels.tolist()} == {0, 6}


def test_core50_lists_are_read_from_the_archive_too(tmp_path: Path) -> None:
    root = write_core50(tmp_path / "a")
    archive = tmp_path / "core50_nicv2_filelists.tar.xz"
    with tarfile.open(archive, "w:xz") as file:
        file.add(root / "sIII_v2_12", arcname="./sIII_v2_12")
    assert nicv2_lists(archive, 12, 0) == nicv2_lists(root, 12, 0)
    assert nicv2_test(archive, 12, 0) == nicv2_test(root, 12, 0)
    shutil.rmtree(root / "sIII_v2_12")
    direct = core50_nicv2(root, 0, 5, n=12, lists=archive)
    shutil.copy(archive, root)
    found = core50_nicv2(root / "core50_128x128" / "..", 0, 5, n=12)
    assert torch.equal(direct[0][3].ids, found[0][3].ids)
    archive.write_bytes(archive.read_bytes()[:300])
    with pytest.raises(BadData, match="cannot be read"):
        nicv2_lists(archive, 12, 0)


def test_core50_by_session_has_training_and_test_frames(tmp_path: Path) -> None:
    train, test, names = core50_classes(write_core50(tmp_path) / "core50_128x128", 5, complete=False)
    assert (len(train), len(test), len(names)) == (32, 12, 50)
    assert train.labels.bincount(minlength=50)[[0, 6]].tolist() == [16, 16]
    assert not set(train.ids.tolist()) & set(test.ids.tolist())
    with pytest.raises(BadData, match=r"32 frames instead of 119,894.*core50_128x128\.zip"):
        core50_classes(tmp_path)


def test_missing_core50_images_are_counted_and_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"no CORe50 images in .*core50_128x128\.zip"):
        core50_nicv2(tmp_path, 0)
    root = write_core50(tmp_path)
    for name in ("s1/o7/C_01_07_001.png", "s3/o1/C_03_01_000.png"):
        (root / "core50_128x128" / name).unlink()
    with pytest.raises(BadData, match=r"2 of 44 CORe50 images are missing.* s1/o7/C_01_07_001\.png"):
        core50_nicv2(root, 0, n=12)


def test_missing_or_strange_core50_lists_are_refused(tmp_path: Path) -> None:
    root = write_core50(tmp_path)
    with pytest.raises(BadData, match=r"0 of 391 training lists for run 0.*batches_filelists_NICv2\.zip"):
        core50_nicv2(root, 0)
    with pytest.raises(BadData, match="no test_filelist"):
        nicv2_test(root, 12, 5)
    path = root / "sIII_v2_12" / "run0" / "train_batch_3_filelist.txt"
    path.write_text("../../secret.png 0\n")
    with pytest.raises(BadData, match="train_batch_3_filelist"):
        nicv2_lists(root, 12, 0)
    path.unlink()
    with pytest.raises(BadData, match="11 of 12"):
        nicv2_lists(root, 12, 0)


@given(st.integers(0, 2**31))
def test_core50_41_starts_with_one_object_of_each_category(seed: int) -> None:
    order = core50_41_order(seed)
    assert sorted(order) == list(range(50))
    assert sorted(label // 5 for label in order[:10]) == list(range(10))
    assert order == core50_41_order(seed)


def test_core50_41_orders_differ_by_seed() -> None:
    assert len({tuple(core50_41_order(seed)) for seed in range(4)}) == 4


@needs_lists
def test_the_real_nicv2_lists_have_the_published_counts() -> None:
    batches, test = nicv2_lists(LISTS, 391, 0), nicv2_test(LISTS)
    assert len(batches) == 391 and sum(map(len, batches)) == 119_894 and len(test) == 44_972
    assert len(batches[0]) == 2999 and {label for _, label in batches[0]} == set(range(0, 50, 5))
    assert all(293 <= len(batch) <= 300 and len({label for _, label in batch}) == 1 for batch in batches[1:])
    seen = {label for _, label in batches[0]}
    introductions = 0
    for batch in batches[1:]:
        introductions += not {label for _, label in batch} <= seen
        seen |= {label for _, label in batch}
    assert introductions == 40 and seen == set(range(50))
    frames = [name for batch in batches for name, _ in batch]
    assert len(set(frames)) == len(frames) and not set(frames) & {name for name, _ in test}


@needs_lists
def test_a_stream_of_the_real_nicv2_lists_has_the_published_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "core50_128x128" / "s1").mkdir(parents=True)
    (tmp_path / LISTS.name).symlink_to(LISTS)
    monkeypatch.setattr("triphase.data.sources.core50._check_present", lambda folder, wanted: None)
    lessons, test, names = core50_nicv2(tmp_path, 3)
    nicv2 = stream(lessons, test, names, n_classes=50, evaluation="all")
    sizes = [len(experience.images) for experience in nicv2.experiences]
    assert len(sizes) == 391 and sizes[0] == 2999 and all(293 <= size <= 300 for size in sizes[1:])
    assert sum(sizes) == 119_894 and len(nicv2.test) == 44_972
    assert [experience.index for experience in nicv2.experiences] == list(range(1, 392))
    assert nicv2.experiences[0].classes == tuple(range(10))
    assert list(nicv2.names[:10]) == names[::5] and sorted(nicv2.names) == sorted(names)
    assert all(len(experience.classes) == 1 for experience in nicv2.experiences[1:])


@needs_lists
def test_the_table_of_core50_frames_agrees_with_the_real_lists() -> None:
    frames = [name for batch in [*nicv2_lists(LISTS, 391, 0), nicv2_test(LISTS)] for name, _ in batch]
    found = Counter(name.rpartition("/")[0] for name in frames)
    assert found == {f"s{s}/o{obj}": frames_of(s, obj) for s in range(1, 12) for obj in range(1, 51)}


@needs_lists
@pytest.mark.parametrize("n", [79, 196])
def test_the_other_real_nicv2_lists_have_all_images(n: int) -> None:
    batches = nicv2_lists(LISTS, n, 9)
    assert len(batches) == n and sum(map(len, batches)) == 119_894


# Whether it is complete


def test_core50_names_missing_sessions_and_short_objects(tmp_path: Path) -> None:
    for session in (1, 2, 3):
        touch_core50(tmp_path / "core50_128x128", session, 2, frames_of(session, 2))
    (tmp_path / "core50_128x128" / "s2" / "o2" / "C_02_02_000.png").unlink()
    empty(tmp_path / "core50_128x128" / "s2" / "o2" / ".C_02_02_000.png")
    dataset = look(tmp_path, "core50")
    assert dataset.state == "incomplete"
    assert found(dataset)["training frames"] == 296 + 300 - 1 and found(dataset)["test frames"] == 300
    sessions, objects = dataset.problems
    lacking = sum(frames_of(s, obj) for s in range(4, 12) for obj in range(1, 51))
    assert sessions == f"Missing: sessions s4, s5, s6, s7, s8 and 3 more ({lacking:,} frames)."
    assert "s1/o1 (0 of 300)" in objects and "s1/o2" not in objects and objects.endswith(" more.")
    train, test, _ = core50_classes(tmp_path, complete=False)
    assert [len(train), len(test)] == list(found(dataset).values())[:2]


def test_core50_with_every_frame_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(folder: Path, sessions: tuple[int, ...], obj: int) -> list[str]:
        return [f"{i}.png" for session in sessions for i in range(frames_of(session, obj))]

    (tmp_path / "s1").mkdir()
    monkeypatch.setattr("triphase.data.sources.core50._listed", listed)
    dataset = look(tmp_path, "core50")
    assert [str(count) for count in dataset.counts] == [
        "119,894 of 119,894 training frames",
        "44,972 of 44,972 test frames",
        "0 of 3,920 lists of NICv2-391 in 10 runs",
    ]
    assert dataset.problems == () and dataset.state == "incomplete"
    write_lists(tmp_path)
    assert look(tmp_path, "core50").state == "complete"


def write_lists(place: Path) -> None:
    names = ["test_filelist.txt", *(f"train_batch_{batch:02}_filelist.txt" for batch in range(391))]
    for run in range(10):
        for name in names:
            empty(place / "NIC_v2_391" / f"run{run}" / name)


def test_lists_of_nicv2_are_counted_run_by_run_in_folders_and_in_the_archive(tmp_path: Path) -> None:
    folders, packed = tmp_path / "folders", tmp_path / "packed"
    write_lists(folders)
    (folders / "NIC_v2_391" / "run3" / "train_batch_17_filelist.txt").unlink()
    (folders / "NIC_v2_391" / "run7" / "test_filelist.txt").unlink()
    packed.mkdir()
    archive = packed / "core50_nicv2_filelists.tar.xz"
    with tarfile.open(archive, "w:xz", preset=0) as file:
        file.add(folders / "NIC_v2_391", arcname="./sIII_v2_391")
    for place in (folders, packed):
        dataset = look(place, "core50")
        assert found(dataset)["lists of NICv2-391 in 10 runs"] == 3918
        assert dataset.problems == ("NICv2-391 lacks lists of run3 (391 of 392), run7 (391 of 392).",)
    archive.write_bytes(archive.read_bytes()[:200])
    (problem,) = look(packed, "core50").problems
    assert "cannot be read" in problem and "batches_filelists_NICv2.zip" in problem
