"""The pictures of docs/app.md: sketches are drawn and taught over HTTP, then a browser shows every area.

python benchmarks/page_pictures.py --out docs/app
"""

from __future__ import annotations

import argparse
import io
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from PIL import Image, ImageDraw
from playwright.sync_api import Browser, Page, expect, sync_playwright

Point = tuple[float, float]
SIDE, INK, SCALE = 256, "#1c1d1b", 3  # sketches are drawn larger and shrunk
LESSONS: list[list[tuple[str, str, range]]] = [  # class, what is drawn, numbers
    [("sun", "sun", range(12)), ("house", "house", range(12)), ("fish", "fish", range(12))],
    [("tree", "tree", range(12)), ("cat", "cat", range(14)), ("fish", "fish", range(20, 26))],
    [("cup", "cup", range(12)), ("cup", "cat", range(50, 52)), ("house", "house", range(20, 28))],
]
WAITING = [("star", "star", range(60, 65)), ("cat", "cat", range(70, 73))]
UNSURE = [("star", range(6)), ("boat", range(5))]


def ring(x: float, y: float, rx: float, ry: float, start: float = 0, end: float = math.tau) -> list[Point]:
    turns = [start + (end - start) * i / 28 for i in range(29)]
    return [(x + rx * math.cos(turn), y + ry * math.sin(turn)) for turn in turns]


def sun(x: float, y: float, s: float) -> list[list[Point]]:
    rays = [(math.cos(i * math.tau / 8), math.sin(i * math.tau / 8)) for i in range(8)]
    return [
        ring(x, y, 0.55 * s, 0.55 * s),
        *([(x + 0.8 * s * c, y + 0.8 * s * d), (x + 1.25 * s * c, y + 1.25 * s * d)] for c, d in rays),
    ]


def house(x: float, y: float, s: float) -> list[list[Point]]:
    walls = [(x - 0.85 * s, y), (x - 0.85 * s, y + s), (x + 0.85 * s, y + s), (x + 0.85 * s, y)]
    door = [(x - 0.2 * s, y + s), (x - 0.2 * s, y + 0.4 * s), (x + 0.2 * s, y + 0.4 * s), (x + 0.2 * s, y + s)]
    return [[(x - s, y), (x, y - 1.1 * s), (x + s, y)], walls, door]


def fish(x: float, y: float, s: float) -> list[list[Point]]:
    tail = [(x + 0.7 * s, y), (x + 1.35 * s, y - 0.5 * s), (x + 1.35 * s, y + 0.5 * s), (x + 0.7 * s, y)]
    return [ring(x - 0.25 * s, y, s, 0.55 * s), tail, ring(x - 0.8 * s, y - 0.1 * s, 4, 4)]


def tree(x: float, y: float, s: float) -> list[list[Point]]:
    trunk = [[(x + side, y + 1.2 * s), (x + side, y + 0.45 * s)] for side in (-8.0, 8.0)]
    return [*trunk, ring(x, y - 0.25 * s, 0.8 * s, 0.75 * s)]


def cat(x: float, y: float, s: float) -> list[list[Point]]:
    ears = [
        [(x + side * 0.75 * s, y - 0.3 * s), (x + side * 0.7 * s, y - 1.1 * s), (x + side * 0.2 * s, y - 0.7 * s)]
        for side in (-1, 1)
    ]
    eyes = [ring(x + side * 0.3 * s, y - 0.1 * s, 6, 8) for side in (-1, 1)]
    return [
        ring(x, y, 0.85 * s, 0.75 * s),
        *ears,
        *eyes,
        ring(x, y + 0.15 * s, 0.3 * s, 0.25 * s, 0.4, math.pi - 0.4),
    ]


def cup(x: float, y: float, s: float) -> list[list[Point]]:
    body = [(-0.6, -0.6), (-0.5, 0.7), (0.4, 0.7), (0.5, -0.6), (-0.6, -0.6)]
    return [[(x + a * s, y + b * s) for a, b in body], ring(x + 0.55 * s, y, 0.35 * s, 0.35 * s, -1.4, 1.4)]


def star(x: float, y: float, s: float) -> list[list[Point]]:
    radii = [s if i % 2 == 0 else 0.42 * s for i in range(11)]
    return [[(x + r * math.sin(i * math.pi / 5), y - r * math.cos(i * math.pi / 5)) for i, r in enumerate(radii)]]


def boat(x: float, y: float, s: float) -> list[list[Point]]:
    hull = [(-1, 0.3), (-0.6, 0.8), (0.6, 0.8), (1, 0.3), (-1, 0.3)]
    sail = [(0, 0.3), (0, -1), (0.6, 0.1), (0, 0.1)]
    return [[(x + a * s, y + b * s) for a, b in line] for line in (hull, sail)]


KINDS: dict[str, Callable[[float, float, float], list[list[Point]]]] = {
    draw.__name__: draw for draw in (sun, house, fish, tree, cat, cup, star, boat)
}


def strokes(kind: str, number: int) -> list[list[Point]]:
    """The lines of a sketch, each number a little different in place, size and hand."""
    own = random.Random(f"{kind}{number}")
    lines = KINDS[kind](128 + own.uniform(-12, 12), 128 + own.uniform(-12, 12), own.uniform(54, 76))
    return [[(x + own.uniform(-1.6, 1.6), y + own.uniform(-1.6, 1.6)) for x, y in _dense(line)] for line in lines]


def _dense(line: list[Point]) -> Iterator[Point]:
    for (x0, y0), (x1, y1) in zip(line, line[1:], strict=False):
        n = max(1, round(math.hypot(x1 - x0, y1 - y0) / 8))
        yield from ((x0 + (x1 - x0) * i / n, y0 + (y1 - y0) * i / n) for i in range(n))
    yield line[-1]


def sketch(kind: str, number: int) -> bytes:
    """A sketch as a PNG."""
    picture = Image.new("RGB", (SIDE * SCALE, SIDE * SCALE), "white")
    pencil = ImageDraw.Draw(picture)
    for line in strokes(kind, number):
        pencil.line([(x * SCALE, y * SCALE) for x, y in line], fill=INK, width=9 * SCALE, joint="curve")
    file = io.BytesIO()
    picture.resize((SIDE, SIDE), Image.Resampling.LANCZOS).save(file, "PNG")
    return file.getvalue()


@contextmanager
def served(model: Path) -> Iterator[str]:
    """The address of `triphase serve`."""
    command = [
        sys.executable,
        "-m",
        "triphase",
        "serve",
        str(model),
        "--no-open",
        "--port",
        "0",
        "--keep-unsure",
        "50MB",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1]
        finally:
            process.terminate()


def teach(address: str, model: str) -> None:
    """Three lessons, photos that wait for the next one, and photos that the answers are unsure of."""
    url, token = address.split("/?token=")
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{url}/api/v1/models/{model}", headers=headers, timeout=120) as client:
        for lesson in LESSONS:
            _upload(client, lesson)
            number = client.post("/lessons", json={"draft": "next"}).raise_for_status().json()["id"]
            while (state := client.get(f"/lessons/{number}").json())["state"] == "running":
                time.sleep(0.5)
            assert state["state"] == "done", state
        _upload(client, WAITING)
        for kind, numbers in UNSURE:
            files = [("files", (f"{number}.png", sketch(kind, number))) for number in numbers]
            client.post("/predict", files=files).raise_for_status()


def _upload(client: httpx.Client, parts: list[tuple[str, str, range]]) -> None:
    for label, kind, numbers in parts:
        files = [("files", (f"{number}.png", sketch(kind, number))) for number in numbers]
        client.post("/drafts/next/photos", files=files, data={"label": label}).raise_for_status()


def draw_on(page: Page, panel: str, kind: str, number: int) -> None:
    box = page.locator(f"{panel} canvas").bounding_box()
    assert box is not None
    for line in strokes(kind, number):
        points = [(box["x"] + x / SIDE * box["width"], box["y"] + y / SIDE * box["height"]) for x, y in line]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point)
        page.mouse.up()


def take(browser: Browser, address: str, out: Path) -> None:
    """Every area on a screen, and three of them on a phone."""
    page = _open(browser, address, width=1280, height=860)
    expect(page.locator("#cards img").first).to_be_visible()
    page.locator("#class-name").fill("star")
    draw_on(page, "#teach-draw-panel", "star", 99)
    _shot(page, out / "teach.png")
    _try(page, address)
    _shot(page, out / "try.png")
    _review(page, address)
    _shot(page, out / "review.png", full_page=True)
    page.goto(f"{address}#history")
    expect(page.locator(".timeline li")).to_have_count(len(LESSONS))
    _shot(page, out / "history.png")
    _phones(browser, address, out / "phone.png")
    _lesson(page, address, out)


def _open(browser: Browser, address: str, width: int, height: int, **more: Any) -> Page:
    page = browser.new_page(viewport={"width": width, "height": height}, **more)
    page.set_default_timeout(300_000)
    page.goto(address)
    expect(page.locator("#teach")).to_be_visible()
    return page


def _try(page: Page, address: str) -> None:
    page.goto(f"{address}#try")
    expect(page.locator("#try-draw-panel canvas")).to_be_visible()
    draw_on(page, "#try-draw-panel", "house", 99)
    expect(page.locator(".answer .near").first).to_be_visible()


def _review(page: Page, address: str) -> None:
    page.goto(f"{address}#review")
    expect(page.locator(".enough li").first).to_be_visible()
    expect(page.locator("#review [aria-busy]")).to_have_count(0)


def _phones(browser: Browser, address: str, file: Path) -> None:
    steps: list[tuple[str, Callable[[Page, str], None]]] = [
        ("light", lambda *_: None),
        ("dark", _try),
        ("dark", _review),
    ]
    shots = []
    for scheme, step in steps:
        page = _open(browser, address, width=360, height=740, color_scheme=scheme)
        step(page, address)
        page.wait_for_timeout(500)
        shots.append(Image.open(io.BytesIO(page.screenshot())))
    sheet = Image.new("RGB", (3 * 360 + 2 * 24, 740), "white")
    for i, shot in enumerate(shots):
        sheet.paste(shot, (i * 384, 0))
    _save(sheet, file)


def _lesson(page: Page, address: str, out: Path) -> None:
    page.goto(f"{address}#teach")
    page.locator("#teach-now").click()
    page.get_by_role("button", name="Start the lesson").click()
    expect(page.locator(".lesson-text")).to_contain_text("Phase II:")
    expect(page.locator(".lesson-panel")).to_contain_text("left")
    _save(Image.open(io.BytesIO(page.locator(".lesson-panel").screenshot())), out / "lesson.png")
    expect(page.locator("#lesson")).to_contain_text("Learned.")
    _save(Image.open(io.BytesIO(page.locator(".outcome").screenshot())), out / "outcome.png")


def _shot(page: Page, file: Path, **more: Any) -> None:
    page.wait_for_timeout(500)  # pictures arrive
    _save(Image.open(io.BytesIO(page.screenshot(**more))), file)


def _save(picture: Image.Image, file: Path) -> None:
    picture.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        file, optimize=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/app"))
    parser.add_argument("--chromium", default=shutil.which("chromium"), help="Path of the browser.")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=300_000)  # a lesson on a busy machine
    with tempfile.TemporaryDirectory() as folder, served(Path(folder) / "drawings") as address:
        teach(address, "drawings")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=arguments.chromium, args=["--no-sandbox"])
            take(browser, address, arguments.out)
            browser.close()


if __name__ == "__main__":
    main()
