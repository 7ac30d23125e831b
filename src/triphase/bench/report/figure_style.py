"""The style of figures: one colour per learner, TPC violet, legible on light and dark; PNG and SVG."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.figure import Figure

INK = "#24292f"  # of text and axes; a page replaces it by its own text colour
COLOURS = {
    "tpc": "#8b4fd9",
    "anchored": "#4b1a8f",
    "ar1": "#e0861a",
    "bic": "#1f9d61",
    "derpp": "#2f80d8",
    "replay": "#18a3b5",
    "finetune": "#d9483b",
    "ncm": "#a07a54",
    "slda": "#d0589f",
    "slda_depths": "#8c2f66",
    "ranpac": "#8f9a1e",
    "joint": "#808890",
}
NEW_COLOURS = ("#5a5fe0", "#c0407a", "#3f8f8a", "#b5651d")  # of learners that come later
MARKERS = {"tpc": "o", "anchored": "p", "ar1": "s", "bic": "^", "derpp": "D", "replay": "v", "finetune": "x"}
MARKERS |= {"ncm": "P", "slda": "*", "slda_depths": "X", "ranpac": "h"}
PHASES = {
    "start": "#9aa3ad",
    "I": "#c9a9f2",
    "II": "#8b4fd9",
    "III": "#5b2a9d",
    "train": "#2f80d8",
    "E_1": "#e0b13a",
}
PARTS = {"data": "#e0861a", "llf": "#1f9d61", "csf": "#2f80d8", "head": "#8b4fd9", "other": "#9aa3ad"}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "text.parse_math": False,  # a $ in a name is a $
    "svg.hashsalt": "triphase",  # the same runs give the same file
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


def colour_of(learner: str) -> str:
    """A learner's colour; a new learner gets one by its name."""
    return COLOURS.get(learner) or new_colour(learner)


def new_colour(name: str) -> str:
    """A colour by name for what has none of its own."""
    return NEW_COLOURS[zlib.crc32(name.encode()) % len(NEW_COLOURS)]


@contextmanager
def styled() -> Iterator[None]:
    """A context in which figures are drawn in this style."""
    with matplotlib.rc_context(STYLE):
        yield


def png(figure: Figure, dpi: int = 200) -> bytes:
    """A figure as the bytes of a PNG file, on white."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def svg(figure: Figure) -> str:
    """A figure as SVG with a transparent background."""
    buffer = io.StringIO()
    with styled():
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return buffer.getvalue()


def inline(picture: str) -> str:
    """An SVG to put into a page: in the text colour of the page, without metadata and links."""
    body = picture[picture.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", body)
    return body.replace(INK, "currentColor")
