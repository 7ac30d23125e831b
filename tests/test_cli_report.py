"""triphase bench report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fake_reports import make, write
from triphase.cli.report import report as report_command


def test_the_command_answers_with_one_document_or_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triphase.bench.report.write.all_figures", lambda groups: [])  # they take seconds
    app = typer.Typer()
    app.command()(report_command)
    runs, out = write(tmp_path / "runs", make("tpc", 0.5), make("ar1", 0.4)), tmp_path / "report"
    answer = CliRunner().invoke(app, [str(runs), "--out", str(out), "--json"])
    document = json.loads(answer.output)
    assert document["report"] == str(out / "report.html") and document["notes"]
    (ar1,) = (r for r in document["tables"]["amca"] if r["learner"] == "AR1" and r["benchmark"] == "core50-41")
    assert ar1["mean"] == pytest.approx(40) and ar1["ratio_to_tpc"] == pytest.approx(0.8)
    answer = CliRunner().invoke(app, [str(runs), "--out", str(out)])
    assert answer.exit_code == 0 and "not run" in answer.output and "report.html" in answer.output
