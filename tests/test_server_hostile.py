"""Ten thousand hostile requests: no traceback, no mistake of the server, nothing touched that should not be."""

from __future__ import annotations

import io
import logging
import random
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from PIL import Image
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from lessons import World
from serving import TOKEN, Served, serving
from triphase.server.limits import Limits
from triphase.server.options import ServeOptions

REQUESTS = 10_000
SECRET = b"nobody may read this"
pytestmark = pytest.mark.slow


class Fortress:
    """A server, what lies around its model, and what it complained about."""

    def __init__(self, served: Served, place: Path, log: list[str]) -> None:
        self.served, self.place, self.log = served, place, log
        self.before = self.around()
        self.requests = 0

    def around(self) -> dict[str, bytes]:
        """Every file that is neither the model's nor the server's."""
        mine = (self.place / "m", self.place / "m.serve")
        files = [file for file in self.place.rglob("*") if file.is_file()]
        return {str(f): f.read_bytes() for f in files if not any(f.is_relative_to(folder) for folder in mine)}

    def check(self, response: Any) -> None:
        """What holds for every answer."""
        self.requests += 1
        assert response.status_code < 500 or response.status_code in (503, 507), response.text
        assert b"Traceback" not in response.content and SECRET not in response.content
        if response.status_code >= 400:
            assert "application/problem+json" in response.headers["content-type"], response.text
            assert response.json()["detail"]
        assert self.log == []


@pytest.fixture(scope="module")
def fortress(original: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    place = tmp_path_factory.mktemp("fortress")
    shutil.copytree(original.base, place / "m")
    (place / "secret.txt").write_bytes(SECRET)
    (place / "photos" / "cat").mkdir(parents=True)
    (place / "photos" / "cat" / "secret.png").write_bytes(SECRET)
    log: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: log.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("uvicorn.error").addHandler(handler)
    options = ServeOptions(
        place / "m", photos=place / "photos", keep_unsure=100_000, limits=Limits(draft_bytes=1_000_000)
    )
    try:
        with serving(options) as served:
            yield Fortress(served, place, log)
    finally:
        logging.getLogger("uvicorn.error").removeHandler(handler)


def test_requests_beside_the_schema(fortress: Fortress) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = fortress.served.url
    schema = schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json", headers=headers)
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    each = REQUESTS // len(operations) // 2 + 1
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    for operation in operations:
        if operation.path.endswith("/events"):
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                strategy = operation.as_strategy(generation_mode=mode)
            except Exception:  # an operation without parameters cannot be asked wrongly
                continue

            @settings(max_examples=each, suppress_health_check=checks, database=None)
            @given(case=strategy)
            def attack(case: schemathesis.Case[Any]) -> None:
                case.path_parameters = {**(case.path_parameters or {}), "model": "m"}
                case.headers.update(headers)
                fortress.check(case.call(base_url=url, timeout=60))

            attack()
    assert fortress.requests > REQUESTS / 2
    assert fortress.around() == fortress.before


def saved(image: Image.Image, kind: str, **more: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims to be large."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(bytes(99)))]
    chunks = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def hostile_images() -> dict[str, bytes]:
    """Files that are not what they seem, or more than they seem."""
    draw = random.Random(0)
    good = Image.effect_noise((64, 48), 50).convert("RGB")
    kinds = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "ICO", "PPM", "TGA", "PCX", "SGI", "DDS")
    files = {f"good.{kind.lower()}": saved(good, kind) for kind in kinds}
    for name, content in list(files.items()):
        for cut in (1, 8, 20, len(content) // 2, len(content) - 1):
            files[f"cut{cut}-{name}"] = content[:cut]
        for turn in range(5):
            noisy = bytearray(content)
            for _ in range(20):
                noisy[draw.randrange(len(noisy))] = draw.randrange(256)
            files[f"noise{turn}-{name}"] = bytes(noisy)
    files |= {
        "bomb.png": png_header(60_000, 60_000),
        "wide.png": png_header(2**31 - 1, 1),
        "nothing.png": png_header(0, 0),
        "large.jpg": saved(Image.new("L", (12_000, 12_000)), "JPEG"),
        "progressive.jpg": saved(good, "JPEG", progressive=True),
        "float.tiff": saved(Image.new("F", (9, 9), 0.5), "TIFF"),
        "deep.png": saved(Image.new("I;16", (9, 9), 40_000), "PNG"),
        "script.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file\n",
        "picture.svg": b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><svg>&x;</svg>',
        "photo.heic": b"\0\0\0\x18ftypheic" + bytes(99),
        "random.jpg": draw.randbytes(1000),
        "empty.jpg": b"",
        "../../../../escape.png": files["good.png"],
        "\u202egnp.exe": files["good.png"],
        "\x1b[31m\x00.png": files["good.png"],
    }
    return files


def test_hostile_images(fortress: Fortress) -> None:
    served = fortress.served
    for name, content in hostile_images().items():
        files = [("files", (name, content))]
        for path, fields in (("/predict", {}), ("/drafts/hostile/photos", {"label": "cat"}), ("/unteach", {})):
            fortress.check(served.client.post(served.model + path, files=files, data=fields))
    assert fortress.around() == fortress.before
