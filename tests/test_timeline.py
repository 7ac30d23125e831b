"""The history of a model with the accuracy of its versions."""

from typing import Any

import pytest

from lessons import World, done, model_of
from triphase.app.corrections import take_back
from triphase.app.plan import LessonSettings
from triphase.app.store.versions import Store
from triphase.app.teach import teach
from triphase.app.timeline import timeline


def test_every_kept_version_has_its_accuracy(world: World) -> None:
    done("teach", world.base, world.two, "--force")
    taken = next(iter(model_of(world.base).taught))
    take_back(world.base, [taken])
    done("undo", world.base)
    entries = timeline(world.base)
    assert [(e.version, e.event["event"]) for e in entries] == [
        (1, "taught"),
        (2, "taught"),
        (3, "untaught"),
        (2, "undone"),
    ]
    assert [e.in_use for e in entries] == [False, False, False, True] and all(e.kept for e in entries)
    assert [e.classes for e in entries] == [3, 4, 4, 4] and [e.photos for e in entries] == [30, 45, 44, 45]
    for entry in entries:
        correct = Store(world.base).load(entry.version)[0]["app"]["exemplar_correct"]
        assert entry.accuracy is not None
        assert (entry.accuracy.right, entry.accuracy.n) == (int(correct.sum()), len(correct))
    assert entries[1].before is not None and entries[1].after is not None and entries[2].after is None


def test_of_a_version_that_is_no_longer_kept_the_event_is_left(world: World) -> None:
    done("teach", world.base, world.two, "--force", "--keep", 1)
    first, second = timeline(world.base)
    assert not first.kept and first.accuracy is None and first.classes is None and first.event["images"] == 30
    assert second.kept and second.in_use and second.photos == 45


def test_a_quick_version_counts_the_photos_of_its_lesson(world: World) -> None:
    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "taught_quick":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        teach(world.base, world.two, None, LessonSettings(quick=True, force=True), on_event=stop)
    assert [(e.event["event"], e.photos) for e in timeline(world.base)] == [("taught", 30), ("taught_quick", 45)]
