"""Identities: a class is the same class under whatever name, and the versions alone say so."""

from collections.abc import Sequence
from pathlib import Path

from store_helpers import info, model, taught
from triphase.app.store.identities import ids_of, inherited, names_of, without_names
from triphase.app.store.schema import Identity
from triphase.app.store.versions import Store


def publish(store: Store, names: Sequence[str], renamed: tuple[str, str] | None = None) -> None:
    store.publish(model(1, *names), info(1, *names), taught(1), renamed=renamed)


def test_a_class_keeps_its_identity_from_version_to_version(tmp_path: Path) -> None:
    store = Store(tmp_path)
    publish(store, ["cat", "dog"])
    publish(store, ["cat", "owl", "dog"])
    assert {name: identity.id for name, identity in store.version().identities.items()} == {
        "cat": "1-0",
        "dog": "1-1",
        "owl": "2-1",
    }


def test_a_renamed_class_keeps_its_identity_and_its_former_names(tmp_path: Path) -> None:
    store = Store(tmp_path)
    publish(store, ["cat"])
    publish(store, ["tiger"], renamed=("cat", "tiger"))
    publish(store, ["lion"], renamed=("tiger", "lion"))
    assert store.version().identities == {"lion": Identity(id="1-0", former_names=["cat", "tiger"])}
    publish(store, ["cat"], renamed=("lion", "cat"))
    assert store.version().identities == {"cat": Identity(id="1-0", former_names=["tiger", "lion"])}


def test_a_class_that_was_forgotten_and_taught_again_is_another_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for names in (("cat", "dog"), ("dog",), ("dog", "cat")):
        publish(store, names)
    assert store.version(1).identities["cat"].id != store.version(3).identities["cat"].id
    assert store.version(1).identities["dog"].id == store.version(3).identities["dog"].id


def test_a_class_is_found_in_versions_that_were_undone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    publish(store, ["cat", "dog"])
    publish(store, ["tiger", "dog"], renamed=("cat", "tiger"))
    store.undo()
    publish(store, ["lion", "dog"], renamed=("cat", "lion"))
    versions = [store.version(number) for number in store.version_numbers()]
    assert ids_of("lion", versions) == ids_of("tiger", versions) == ids_of("cat", versions) == {"1-0"}
    assert names_of({"1-0"}, versions) == {"cat", "tiger", "lion"}


def test_names_that_are_gone_are_no_former_names_of_others() -> None:
    identities = inherited(["owl", "dog"], inherited(["cat", "dog"], {}, 1), 2, renamed=("cat", "owl"))
    assert without_names(identities, ["owl"], {"cat"}) == {"owl": Identity(id="1-0", former_names=[])}
