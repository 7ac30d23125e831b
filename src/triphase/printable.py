"""Text for people: names of files and classes without hidden characters, numbers with their nouns, percentages."""

import re
import unicodedata

# Control characters, invisible format characters, lone surrogates, and breaks of lines and paragraphs.
HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
FILLERS = frozenset("\u115f\u1160\u3164\uffa0")  # letters without a shape
SHOWN = re.compile(
    "(?<=[^\0-\x7f\u200b-\u200f])[\u200c\u200d](?=[^\0-\x7f\u200b-\u200f])"  # joiners inside emoji and some scripts
    "|\U0001f3f4[\U000e0020-\U000e007e]+\U000e007f"  # flags of regions
    "|[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd]"  # format characters that have a shape
)


def printable(text: object) -> str:
    r"""A path, a name or a sentence with invisible characters escaped; escaping twice changes nothing more.

    Escape sequences, line breaks, characters that turn the direction of writing and bytes that are no UTF-8 would
    otherwise change what a terminal shows, or make printing fail.

    >>> printable("red\x1b[31m"), printable("a\nb\u202ec"), printable("caf\udce9")
    ('red\\x1b[31m', 'a\\nb\\u202ec', 'caf\\xe9')
    """
    text = str(text)
    if text.isprintable() and not FILLERS & set(text):
        return text
    shown: list[str] = []
    end = 0
    for match in SHOWN.finditer(text):
        shown += [*map(_escape, text[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*shown, *map(_escape, text[end:])])


def _escape(character: str) -> str:
    """The character, or an escape as Python writes it if it cannot be seen."""
    if unicodedata.category(character) not in HIDDEN_CATEGORIES and character not in FILLERS:
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python holds a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def percent(value: float | None) -> str:
    """A share in per cent, with one decimal; a dash for None.

    >>> percent(0.9876), percent(None)
    ('98.8 %', '–')
    """
    return "–" if value is None else f"{100 * value:.1f} %"


def count(n: int, what: str) -> str:
    """A number with its noun, in the singular or plural.

    >>> count(1, "photo"), count(2000, "photo"), count(2, "class")
    ('1 photo', '2,000 photos', '2 classes')
    """
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}{'es' if what.endswith('s') else 's'}"


def columns(text: str) -> int:
    """How many columns of a terminal a text takes.

    >>> columns("kiwi"), columns("\u30ad\u30a6\u30a4"), columns("e\u0301")
    (4, 6, 1)
    """
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.category(character) in ("Mn", "Me", "Cf") for character in text)
