"""triphase demo."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from command import Call
from triphase.bench.run import Report


@pytest.mark.slow
def test_demo_as_one_document_with_a_page_that_needs_nothing_else(triphase: Call, tmp_path: Path) -> None:
    answer = triphase("demo", "--epochs-scale", "0.1", "--out", "shown", "--no-lessons", "--json")
    assert answer.status == 0 and answer.err == ""
    document = answer.document()
    assert list(document["learners"]) == ["tpc", "replay", "finetune", "joint"]
    for name, learner in document["learners"].items():
        report = Report.from_json(learner)
        assert report.final_accuracy == learner["final_accuracy"]
        assert len(report.accuracy) == (1 if name == "joint" else 5)
    accuracy = {name: learner["final_accuracy"] for name, learner in document["learners"].items()}
    assert accuracy["finetune"] < min(accuracy["tpc"], accuracy["replay"]), "fine-tuning did not forget"

    assert document["report"] == "shown/report.html"
    page = (tmp_path / document["report"]).read_text()
    assert not re.search(r"""(src|href|url\()\s*=?\s*["']?\s*(https?:)?//""", page), "the page fetches something"
    assert not re.search(r"<(script|link|iframe)[^>]+(src|href)=", page)
    sources = re.findall(r'<img[^>]+src="([^"]*)"', page)
    assert len(sources) == 4 and all(source.startswith("data:image/png;base64,") for source in sources)
    for title, learner in (("TPC", "tpc"), ("Fine-tuning", "finetune")):
        assert title in page and f"{100 * accuracy[learner]:.1f}" in page
    with Image.open(tmp_path / "shown" / "accuracy.png") as picture:
        assert picture.format == "PNG" and min(picture.size) > 300
    assert {file.name for file in (tmp_path / "shown").iterdir()} == {"accuracy.png", "report.html"}


def test_demo_prints_a_table_and_where_the_page_is(triphase: Call) -> None:
    answer = triphase("demo", "--epochs-scale", "0.02", "--out", "shown", "--no-lessons")
    assert answer.status == 0
    for word in ("TPC", "Replay", "Fine-tuning", "Joint training", "AMCA", "final accuracy"):
        assert word in answer.out
    assert "The curves are in shown/report.html" in answer.out
    (joint,) = (line for line in answer.out.splitlines() if "Joint training" in line)
    assert "–" in joint, "one accuracy is no average over experiences"
    assert "tpc        experience 5/5  accuracy" in answer.err


def test_demo_without_the_device_writes_nothing(triphase: Call, tmp_path: Path) -> None:
    answer = triphase("demo", "--device", "cuda:9", "--json")
    assert answer.status == 1 and "There is no device cuda:9" in answer.document()["error"]
    assert list(tmp_path.iterdir()) == []
