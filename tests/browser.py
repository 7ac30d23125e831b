"""A person at the page: a real browser, and what that person does with mouse, keyboard and files."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

AXE = Path(__file__).parent / "page" / "node_modules" / "axe-core" / "axe.min.js"
REQUIRED = "TRIPHASE_REQUIRE_BROWSER"
FLAGS = (
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
)
PATIENCE = 300_000  # milliseconds: a lesson on a busy machine
expect.set_options(timeout=PATIENCE)
Area = Literal["teach", "try", "review", "history"]
Stroke = Sequence[tuple[float, float]]  # points, as shares of the pad's width and height


def missing(what: str) -> NoReturn:
    """Skip, or fail where the environment demands a browser."""
    if os.environ.get(REQUIRED):
        pytest.fail(f"{what}, and {REQUIRED} demands it.")
    pytest.skip(f"{what}: the page is not tested.")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, or another one that is installed."""
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None:
        missing("There is no Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


@dataclass
class Visitor:
    """One page, and everything that went wrong on it."""

    page: Page
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)

    def open(self, address: str, area: Area = "teach") -> None:
        self.page.goto(f"{address}#{area}")
        expect(self.area(area)).to_be_visible()

    def area(self, name: Area) -> Locator:
        return self.page.locator(f"#{name}")

    def go(self, name: Area) -> None:
        self.page.get_by_role("navigation").get_by_role("link", name=name.title()).click()
        expect(self.area(name)).to_be_visible()

    def button(self, name: str, *, exact: bool = True) -> Locator:
        return self.page.get_by_role("button", name=name, exact=exact).locator("visible=true")

    def card(self, name: str) -> Locator:
        return self.page.locator("#cards > li").filter(has=self.page.get_by_role("heading", name=name, exact=True))

    def draw(self, area: Area, strokes: Sequence[Stroke]) -> None:
        pad = self.page.locator(f"#{area}-draw-panel canvas")
        pad.scroll_into_view_if_needed()
        box = pad.bounding_box()
        assert box is not None
        for stroke in strokes:
            points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
            self.page.mouse.move(*points[0])
            self.page.mouse.down()
            for point in points[1:]:
                self.page.mouse.move(*point)
            self.page.mouse.up()

    def drop(self, *paths: Path) -> None:
        """Drop files or folders of the disk on the page, as a file manager does."""
        session = self.page.context.new_cdp_session(self.page)
        data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            session.send("Input.dispatchDragEvent", {"type": kind, "x": 100, "y": 100, "data": data})

    def start_lesson(self) -> None:
        self.button("Teach").click()
        self.button("Start the lesson").click()

    def expect_learned(self) -> None:
        expect(self.page.locator("#lesson")).to_contain_text("Learned. Version")

    def violations(self) -> list[str]:
        """What axe-core finds against WCAG A and AA, a line for each element."""
        if not AXE.is_file():
            missing("There is no axe-core (npm ci in tests/page installs it)")
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
        found: dict[str, Any] = self.page.evaluate("rules => axe.run(document, rules)", rules)
        return [f"{v['id']}: {node['html'][:120]}" for v in found["violations"] for node in v["nodes"]]


def circle(x: float, y: float, radius: float) -> Stroke:
    turns = [math.tau * i / 12 for i in range(13)]
    return [(x + radius * math.cos(turn), y + radius * math.sin(turn)) for turn in turns]


def sketch(kind: str, number: int) -> list[Stroke]:
    """A ring, a cross or a staircase, each a little different from the others of its kind."""
    x, y, size = 0.44 + 0.03 * (number % 4), 0.56 - 0.03 * (number % 5), 0.2 + 0.02 * (number % 3)
    if kind == "ring":
        return [circle(x, y, size)]
    if kind == "cross":
        return [[(x - size, y - size), (x + size, y + size)], [(x + size, y - size), (x - size, y + size)]]
    steps = [(x + size * (i + down) / 2, y + size * i / 2) for i in range(-2, 3) for down in (0, 1)]
    return [steps]
