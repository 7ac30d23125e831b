"""What a version has recorded of its classes."""

from lessons import World
from triphase.app.review import Review
from triphase.app.store.versions import Store
from triphase.app.taught_classes import taught_classes


def test_accuracies_are_those_of_the_opened_model(original: World) -> None:
    store, review = Store(original.base), Review(original.base)
    found = taught_classes(store, store.version())
    assert found.accuracy == review.held_out.accuracy()
    assert found.accuracies == [review.held_out.accuracy(label) for label in range(3)]


def test_every_taught_photo_is_in_its_class(original: World) -> None:
    store, review = Store(original.base), Review(original.base)
    photos = taught_classes(store, store.version()).photos
    assert {id_: label for label, ids in enumerate(photos) for id_ in ids} == review.taught
