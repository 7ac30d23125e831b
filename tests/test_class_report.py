"""Whether enough was taught, and what would help."""

import pytest
import torch

from triphase.app.class_report import ClassReport, class_reports
from triphase.app.held_out_report import HeldOut
from triphase.app.label_check import LeftOut
from triphase.app.taught_index import TaughtIndex

NAMES = ("cat", "dog", "owl")


def index_of(labels: torch.Tensor) -> TaughtIndex:
    """An index whose photos are those that were left out."""
    index = object.__new__(TaughtIndex)
    index.names, index.ids, index.labels = NAMES, torch.arange(len(labels)), labels
    index.held_out = torch.zeros(len(labels), dtype=torch.bool)
    return index


def left_out(answers: list[int], labels: list[int]) -> LeftOut:
    probabilities = torch.eye(3)[answers] if answers else torch.empty(0, 3)
    return LeftOut(torch.arange(len(labels)), torch.tensor(labels, dtype=torch.long), probabilities)


def report_on_cat(answers: list[int], held: list[int], *, taught: int | None = None, half: int = 0) -> ClassReport:
    """The report on class 0: answers of photos left out, of held-out photos, and `half` more errors with half."""
    labels = [0] * len(answers)
    y = torch.zeros(len(held), dtype=torch.long)
    probabilities = torch.eye(3)[held] if held else torch.empty(0, 3)
    with_half = [2] * half + answers[half:]
    reports = class_reports(
        index_of(torch.tensor(labels, dtype=torch.long)),
        [len(answers) if taught is None else taught, 0, 0],
        HeldOut(NAMES, torch.arange(len(y)), y, probabilities, torch.ones(len(y)).bool()),
        left_out(answers, labels),
        left_out(with_half, labels),
    )
    return reports[0]


def test_a_class_that_is_always_right_is_good_enough() -> None:
    report = report_on_cat([0] * 16, [0] * 4)
    assert report.status == "good"
    assert report.advice == "20 of 20 photos of cat are recognised; more are not needed."
    assert report.together.n == 20
    assert report.held_out.n == 4 and report.left_out.n == 16 and report.photos_needed is None


def test_few_photos_do_not_tell() -> None:
    report = report_on_cat([0] * 4, [0])
    assert report.status == "unsure" and report.photos_needed == 7
    assert report.advice == (
        "So far 5 of 5 photos of cat are recognised: about 7 more photos would tell whether that is good enough."
    )
    assert "about 1 more photo would" in report_on_cat([0] * 9, [0, 0]).advice


def test_nothing_measured() -> None:
    report = report_on_cat([], [], taught=3)
    assert report.status == "unmeasured" and report.held_out.share is None
    assert report.advice == "Nothing is known about the accuracy of cat: teach about 12 more photos of it."


def test_two_classes_that_are_confused_need_photos_of_both() -> None:
    report = report_on_cat([0] * 10 + [1] * 4, [0, 1])
    assert report.status == "confused" and report.confused_with == (("dog", 5),)
    assert report.advice == "cat is taken for dog (5 of 16): add photos of both that show the difference."


def test_a_weak_class_needs_photos_only_if_they_help() -> None:
    answers = [0] * 10 + [1, 1, 2, 2]
    helped = report_on_cat(answers, [1, 2], half=3)
    assert helped.status == "weak" and helped.gain == pytest.approx(3 / 14)
    assert helped.advice == "Only 10 of 16 photos of cat are recognised: add photos of cat."
    stuck = report_on_cat(answers, [1, 2])
    assert stuck.gain == 0 and "more of the same kind hardly help" in stuck.advice


def test_what_twice_the_photos_gained_is_only_said_if_all_are_stored() -> None:
    assert report_on_cat([0] * 10, [], half=2).gain == pytest.approx(0.2)
    assert report_on_cat([0] * 10, [], half=2, taught=40).gain is None
