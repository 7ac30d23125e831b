"""A report on disk: page, tables and figures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from PIL import Image

from fake_reports import make, write
from triphase import TPC, FineTune, Memory, Recipe, run
from triphase.bench.report.group import group_runs
from triphase.bench.report.html import render
from triphase.bench.report.write import all_tables, class_records, write_report
from triphase.testing import tiny_model, tiny_stream


def test_the_report_is_one_page_that_needs_nothing_else_and_files_beside_it(tmp_path: Path) -> None:
    runs = [make(name, a, order=o) for name, a in (("tpc", 0.5), ("bic", 0.4)) for o in (1, 2)]
    runs += [make("joint", 0.8), make("tpc", 0.3, memory=None), make("tpc", 0.4, bc="none")]
    written = write_report([write(tmp_path / "runs", *runs)], tmp_path / "report")
    page = written.page.read_text()
    assert "http" not in page and "<script" not in page and "<link" not in page and "@import" not in page
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", page)
    assert "prefers-color-scheme: dark" in page and "currentColor" in page
    for words in ("AMCA", "not run", "paper 50.46 %", "DER++", "Joint training", "No bias correction", "Memory"):
        assert words in page
    figures = {path.stem for path in (tmp_path / "report" / "figures").glob("*.png")}
    wanted = {"accuracy", "no-replay", "paired", "forgetting", "confusion", "phases", "parts"}
    assert figures == {f"core50-41-{name}" for name in wanted}
    for name in figures:
        assert f'<figure id="{name}">' in page
        with Image.open(tmp_path / "report" / "figures" / f"{name}.png") as picture:
            assert picture.width > 800
        ET.parse(tmp_path / "report" / "figures" / f"{name}.svg")
    tables = {path.name for path in (tmp_path / "report" / "tables").iterdir()}
    assert tables - {"classes.csv"} == {
        f"{table.name}.{kind}" for table in all_tables(written.grouped) for kind in ("csv", "md")
    }


def test_every_class_has_its_accuracy_and_forgetting_on_file(tmp_path: Path) -> None:
    run = make("tpc", 0.5)
    run.accuracy = [[0.9, None, None], [0.4, 0.5, 0.6]]
    again = make("tpc", 0.5, order=2, names=("can", "cup", "ball"))
    again.accuracy = [[0.5, None, None], [0.5, 0.2, 0.6]]
    records = class_records(group_runs([write(tmp_path, run, again)]))
    found = {record["class"]: (record["final"], record["forgetting"]) for record in records}
    assert found["cup"] == pytest.approx((30, 50)) and found["can"] == pytest.approx((50, 0))
    assert found["ball"] == (pytest.approx(60), None)


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    run = make("<b>&|$new", 0.5, benchmark="a/b <i>:1", names=("<x>", "$y$", "z_"))
    written = write_report([write(tmp_path / "runs", run)], tmp_path / "report")
    page = written.page.read_text()
    assert "<b>&|$new" not in page and "&lt;b&gt;&amp;|$new" in page and "<i>:1" not in page
    assert r"<b>&\|$new" in (tmp_path / "report" / "tables" / "amca.md").read_text()


def test_a_template_is_utf8_whatever_the_system_prefers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("io.text_encoding", lambda encoding, stacklevel=2: encoding or "cp1252")
    row = {"learner": "Joint training", "amca": None, "final": 0.5, "seconds": 1.0, "memory_bytes": 0}
    page = render("demo.html", title="", command="", rows=[row], pictures={}, versions={})
    assert "<td>–</td>" in page


def test_runs_over_a_stream_of_ones_own_are_compared(tmp_path: Path) -> None:
    for name, learner in (("tpc", TPC(tiny_model(), Memory(12))), ("ft", FineTune(tiny_model()))):
        run(learner, tiny_stream(), first=Recipe(epochs=3, lr=0.01, n_mbe=8), out=tmp_path / name)
    write_report([tmp_path], tmp_path / "report")
    assert "stream " in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
