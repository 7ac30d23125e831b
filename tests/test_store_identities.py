"""Identities: a class is the same class under whatever name, and the versions alone say so."""

from pathlib import Path

from store_helpers import info, model, taught
from triphase.app.store.identities import ids_of, inherited, names_of, without_names
from triphase.app.store.schema import Identity
from triphase.app.store.versions import Store


def classes(*names: str) -> dict[str, object]:
    return info(1, *names)


def test_a_class_keeps_its_identity_from_version_to_version(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish(model(1), classes("cat", "dog"), taught(1))
    store.publish(model(2), classes("cat", "owl", "dog"), taught(2))
    assert {name: identity.id for name, identity in store.version().identities.items()} == {
        "cat": "1-0",
        "dog": "1-1",
        "owl": "2-1",
    }


def test_a_renamed_class_keeps_its_identity_and_its_former_names(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish(model(1), classes("cat"), taught(1))
    store.publish(model(2), classes("tiger"), taught(2), renamed=("cat", "tiger"))
    store.publish(model(3), classes("lion"), taught(3), renamed=("tiger", "lion"))
    assert store.version().identities == {"lion": Identity(id="1-0", former_names=["cat", "tiger"])}
    store.publish(model(4), classes("cat"), taught(4), renamed=("lion", "cat"))
    assert store.version().identities == {"cat": Identity(id="1-0", former_names=["tiger", "lion"])}


def test_a_class_that_was_forgotten_and_taught_again_is_another_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number, names in enumerate((("cat", "dog"), ("dog",), ("dog", "cat")), 1):
        store.publish(model(number), classes(*names), taught(number))
    assert store.version(1).identities["cat"].id != store.version(3).identities["cat"].id
    assert store.version(1).identities["dog"].id == store.version(3).identities["dog"].id


def test_a_class_is_found_in_versions_that_were_undone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish(model(1), classes("cat", "dog"), taught(1))
    store.publish(model(2), classes("tiger", "dog"), taught(2), renamed=("cat", "tiger"))
    store.undo()
    store.publish(model(3), classes("lion", "dog"), taught(3), renamed=("cat", "lion"))
    versions = [store.version(number) for number in store.version_numbers()]
    assert ids_of("lion", versions) == ids_of("tiger", versions) == ids_of("cat", versions) == {"1-0"}
    assert names_of({"1-0"}, versions) == {"cat", "tiger", "lion"}


def test_names_that_are_gone_are_no_former_names_of_others() -> None:
    identities = inherited(["owl", "dog"], inherited(["cat", "dog"], {}, 1), 2, renamed=("cat", "owl"))
    assert without_names(identities, ["owl"], {"cat"}) == {"owl": Identity(id="1-0", former_names=[])}
