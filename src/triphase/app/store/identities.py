"""Identities of classes, which stay the same when a class is renamed; each version records those of its classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from triphase.app.store.schema import Identity, Version

Identities = dict[str, Identity]


def inherited(
    classes: Sequence[str], before: Mapping[str, Identity], number: int, renamed: tuple[str, str] | None = None
) -> Identities:
    """The identities of a new version's classes: those of the version before, and new ones for new classes.

    `renamed` is the old and the new name of a class that keeps its identity.

    >>> first = inherited(["cat", "dog"], {}, 1)
    >>> inherited(["tiger", "dog", "owl"], first, 2, renamed=("cat", "tiger"))["tiger"]
    Identity(id='1-0', former_names=['cat'])
    """
    known = dict(before)
    if renamed is not None and renamed[0] in known:
        identity = known.pop(renamed[0])
        names = [name for name in (*identity.former_names, renamed[0]) if name != renamed[1]]
        known[renamed[1]] = Identity(id=identity.id, former_names=list(dict.fromkeys(names)))
    fresh = ((name, Identity(id=f"{number}-{i}", former_names=[])) for i, name in enumerate(classes))
    return {name: known.get(name, identity) for name, identity in fresh}


def ids_of(name: str, versions: Iterable[Version]) -> set[str]:
    """The identities of the classes that are, or were, called `name` in these versions."""
    return {
        identity.id
        for version in versions
        for current, identity in version.identities.items()
        if name == current or name in identity.former_names
    }


def names_of(ids: Set[str], versions: Iterable[Version]) -> set[str]:
    """All names that classes have, or had, in these versions."""
    return {
        known
        for version in versions
        for name, identity in version.identities.items()
        if identity.id in ids
        for known in (name, *identity.former_names)
    }


def without_names(identities: Mapping[str, Identity], classes: Sequence[str], gone: Set[str]) -> Identities:
    """The identities of the classes that are left, with no former name among those that are gone."""
    return {
        name: Identity(
            id=identities[name].id, former_names=[old for old in identities[name].former_names if old not in gone]
        )
        for name in classes
    }
