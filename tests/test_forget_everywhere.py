"""forget --everywhere: success means that no version and no line of the history holds the class, under any name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lessons import World, content, done, triphase, versions
from triphase import ContinualClassifier
from triphase.app.store.checksums import with_checksum
from triphase.app.store.versions import Store


def words(model: Path) -> set[str]:
    """All words in the documents of a model."""
    documents = [model / "CURRENT", model / "history.jsonl", *(model / "versions").iterdir()]
    return {word for file in documents for word in re.findall(r"[a-z]+", file.read_text())}


def classes_of_all(model: Path) -> set[str]:
    return {name for n in versions(model) for name in Store(model).load(n)[0]["app"]["names"]}


def drop_lines(model: Path, kind: str) -> None:
    """Remove the events of a kind from the history, without a trace."""
    file = model / "history.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(line for line in lines if json.loads(line)["event"] != kind))


def renamed_twice(world: World) -> Path:
    """A model in which red is called scarlet, then crimson, and which is undone and taught in between."""
    done("rename", world.base, "red", "scarlet")
    done("rename", world.base, "scarlet", "crimson")
    done("undo", world.base)
    done("rename", world.base, "scarlet", "ruby")
    done("rename", world.base, "green", "emerald")
    return world.base


def test_a_class_is_found_under_all_its_names_without_the_history(world: World) -> None:
    model = renamed_twice(world)
    drop_lines(model, "renamed")
    done("forget", model, "ruby", "--everywhere")
    assert not words(model) & {"red", "scarlet", "crimson", "ruby"}
    assert classes_of_all(model) == {"blue", "green", "emerald"}


def test_a_class_is_found_in_a_version_that_was_undone_after_a_rename(world: World) -> None:
    """The name of now is the older one; the version that was undone has the newer one."""
    done("rename", world.base, "red", "scarlet")
    done("undo", world.base)
    done("forget", world.base, "red", "--everywhere")
    assert not words(world.base) & {"red", "scarlet"} and classes_of_all(world.base) == {"blue", "green"}


def test_a_class_that_has_another_name_now_is_not_half_forgotten(world: World) -> None:
    done("rename", world.base, "red", "scarlet")
    before = content(world.base)
    answer = triphase("forget", world.base, "red", "--everywhere")
    assert answer.status == 1 and "red is called scarlet now: give that name" in answer.err
    assert content(world.base) == before


def test_a_class_that_only_older_versions_know_is_forgotten_under_all_its_names(world: World) -> None:
    done("rename", world.base, "red", "scarlet")
    done("forget", world.base, "scarlet")
    drop_lines(world.base, "renamed")
    done("forget", world.base, "red", "--everywhere")
    assert not words(world.base) & {"red", "scarlet"} and classes_of_all(world.base) == {"blue", "green"}


def test_names_before_a_rename_go_even_where_no_version_is_kept_that_had_them(world: World) -> None:
    done("rename", world.base, "red", "scarlet")
    done("teach", world.base, world.two, "--force", "--keep", 1)  # its folder is called red: another class
    assert versions(world.base) == [3]
    done("forget", world.base, "scarlet", "--everywhere")
    assert "scarlet" not in words(world.base) and classes_of_all(world.base) == {"blue", "green", "red", "yellow"}
    assert all(identity.former_names == [] for identity in Store(world.base).version().identities.values())


def test_a_class_that_got_a_free_name_is_not_taken_for_the_one_before(world: World) -> None:
    done("rename", world.base, "red", "scarlet")
    done("rename", world.base, "blue", "red")
    done("forget", world.base, "scarlet", "--everywhere")
    assert Store(world.base).version().info["classes"] == ["red", "green"]
    assert Store(world.base).version(1).info["classes"] == ["blue", "green"]


@pytest.mark.parametrize("damage", ["flipped", "half", "not an event"])
@pytest.mark.parametrize("command", [("history",), ("forget", "scarlet", "--everywhere")])
def test_a_damaged_history_is_reported_and_nothing_is_changed(
    world: World, command: tuple[str, ...], damage: str
) -> None:
    done("rename", world.base, "red", "scarlet")
    done("rename", world.base, "blue", "azure")
    file = world.base / "history.jsonl"
    first, second, third = file.read_bytes().splitlines(keepends=True)
    damaged = {
        "flipped": second.replace(b"scarlet", b"scarlot"),
        "half": second[:40] + b"\n",
        "not an event": with_checksum({"event": "renamed", "old": "red"}) + b"\n",
    }
    file.write_bytes(first + damaged[damage] + third)
    before = content(world.base)
    answer = triphase(command[0], world.base, *command[1:])
    assert answer.status == 1 and f"{file}: line 2 is damaged; restore the file" in answer.err
    assert content(world.base) == before


def test_a_damaged_history_is_mentioned_by_commands_that_append_to_it(world: World) -> None:
    done("rename", world.base, "red", "scarlet")
    file = world.base / "history.jsonl"
    file.write_bytes(file.read_bytes().replace(b"taught", b"taughs", 1))
    for command in (("rename", "blue", "azure"), ("undo",), ("forget", "green")):
        answer = done(command[0], world.base, *command[1:])
        assert f"warning: {file}: line 1 is damaged" in answer.err


def test_after_the_damaged_line_is_removed_the_class_can_be_forgotten(world: World) -> None:
    done("rename", world.base, "red", "scarlet")
    done("rename", world.base, "blue", "azure")
    file = world.base / "history.jsonl"
    first, _, third = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + third)
    done("forget", world.base, "scarlet", "--everywhere")
    assert not words(world.base) & {"red", "scarlet"}


def test_a_damaged_version_must_be_restored_before_a_class_can_be_forgotten(world: World) -> None:
    done("rename", world.base, "red", "scarlet")
    file = world.base / "versions" / "000001.json"
    file.write_bytes(file.read_bytes().replace(b"red", b"rod"))
    before = content(world.base)
    answer = triphase("forget", world.base, "scarlet", "--everywhere")
    assert answer.status == 1 and "000001.json is damaged" in answer.err and content(world.base) == before


def test_a_class_that_a_program_gave_its_old_name_back_is_forgotten_under_both(world: World) -> None:
    classifier = ContinualClassifier.load(world.base)
    done("rename", world.base, "red", "scarlet")
    classifier.save(world.base, force=True)  # it calls the class red again
    done("forget", world.base, "red", "--everywhere")
    assert not words(world.base) & {"red", "scarlet"} and classes_of_all(world.base) == {"blue", "green"}
