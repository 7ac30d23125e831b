"""Which names a class may have: one rule for folders, `rename` and labels in programs."""

import unicodedata
from collections.abc import Collection

from triphase.data import UNLABELLED_FOLDER
from triphase.errors import InvalidValue
from triphase.printable import printable

UNKNOWN = "unknown"  # the answer for images that resemble nothing taught
MAX_BYTES = 255  # of the name of a folder


def class_name(text: str) -> str:
    """The name in its stored form, or an error that says why a class cannot have it.

    A class is taught from a folder of its name, so a name that no folder can have, or that cannot be typed from
    what is seen, is refused.

    >>> class_name("cafe\\N{COMBINING ACUTE ACCENT}") == "caf\\N{LATIN SMALL LETTER E WITH ACUTE}"
    True
    """
    name = stored_class_name(text)
    if name != name.strip():
        raise _refused(name, "a space before or after it cannot be seen")
    return name


def stored_class_name(text: str) -> str:
    """The same for a class that a model holds already: older ones may begin or end with a space."""
    name = normalized(text)
    if (reason := _fault(name)) is not None:
        raise _refused(name, reason)
    return name


def normalized(text: str) -> str:
    """A name in Unicode's composed form (NFC), in which names are kept; macOS stores accents decomposed."""
    return unicodedata.normalize("NFC", text)


def _refused(name: str, reason: str) -> InvalidValue:
    shown = printable(name)
    short = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return InvalidValue(f"A class cannot be called '{short}': {reason}.")


def _fault(name: str) -> str | None:
    try:
        n_bytes = len(name.encode())
    except UnicodeEncodeError:
        return "that is not valid UTF-8"
    if not any(sign.isprintable() and not sign.isspace() and printable(sign) == sign for sign in name):
        return "nothing of it can be seen"
    if printable(name) != name:
        return "it holds characters that cannot be seen, which are written here with a backslash"
    if "/" in name:
        return "no folder can have a / in its name"
    if name.startswith("."):
        return "folders whose names begin with a dot are hidden and never scanned"
    if n_bytes > MAX_BYTES:
        return f"it has {n_bytes} bytes in UTF-8, and the name of a folder at most {MAX_BYTES}"
    folded = unicodedata.normalize("NFKC", name).strip().casefold()
    if folded == UNKNOWN:
        return "that is the answer for images unlike any class"
    if folded == UNLABELLED_FOLDER:
        return "that is the folder of photos without a class"
    return None


def no_such_class(names: Collection[str], wanted: str) -> InvalidValue:
    """The error for a class that the model does not know."""
    known = ", ".join(map(repr, sorted(names))) or "none yet"
    return InvalidValue(f"No class is called {wanted!r}; there are {known}.")
