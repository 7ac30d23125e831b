"""Photos in folders."""

import subprocess
import sys
from pathlib import Path

from triphase.data.photo_files import files_below


def test_photos_are_found_at_any_depth_by_name_or_content_and_in_order(tmp_path: Path) -> None:
    for name in ("b/2.JPG", "b/c/1.png", "a.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "nameless").write_bytes(b"\xff\xd8\xff" + bytes(20))
    (tmp_path / "b" / "notes.txt").write_text("no photo")
    (tmp_path / ".hidden.jpg").touch()
    (tmp_path / "b" / "loop").symlink_to(tmp_path / "b")
    found = files_below(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in found.images] == [
        "a.jpg",
        "b/2.JPG",
        "b/c/1.png",
        "b/nameless",
    ]
    assert [path.name for path in found.others] == ["notes.txt"]


def test_finding_photos_does_not_import_torch() -> None:
    code = "import sys; import triphase.data.photo_files; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
