"""What a class may be called: the same at every door."""

import unicodedata

from triphase.errors import InvalidValue

UNKNOWN = "unknown"  # what predict answers for images unlike anything taught
NO_SIGNS = ("Cc", "Zl", "Zp")  # control characters and breaks; not Cf, which joins letters and emoji


def class_name(text: str) -> str:
    """The name as it is kept, or an error that says why it can be none.

    >>> class_name("cafe\\N{COMBINING ACUTE ACCENT}") == "caf\\N{LATIN SMALL LETTER E WITH ACUTE}"
    True
    """
    name = spelled(text)
    if (reason := _fault(name)) is not None:
        raise InvalidValue(f"A class cannot be called {name!r}: {reason}.")
    return name


def spelled(text: str) -> str:
    """A name in the spelling in which names are kept; macOS stores accents apart from their letters."""
    return unicodedata.normalize("NFC", text)


def _fault(name: str) -> str | None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return "that is not valid UTF-8"
    if not any(sign.isprintable() and not sign.isspace() for sign in name):
        return "nothing of it can be seen"
    if any(unicodedata.category(sign) in NO_SIGNS for sign in name):
        return "it holds characters that cannot be printed"
    if "/" in name:
        return "no folder can have a / in its name"
    if unicodedata.normalize("NFKC", name).strip().casefold() == UNKNOWN:
        return "that is the answer for images unlike any class"
    return None
