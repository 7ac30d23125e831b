"""What projects of Label Studio ask, and photos that are fetched from it and from nowhere else."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit
from xml.etree import ElementTree

from triphase.errors import BadData, InvalidValue
from triphase.server.answering import Upload

TIMEOUT = 30.0  # seconds for an answer of Label Studio
MAX_BYTES = 50_000_000  # of one photo
DRAFT = "label-studio"  # collects what was annotated
TOKEN_VARIABLE = "LABEL_STUDIO_API_KEY"  # where Label Studio's own backends look for its token


@dataclass(frozen=True)
class Labelling:
    """What a project asks: one choice about one image."""

    choices: str  # name of the control
    image: str  # name of the object
    key: str  # where a task has the address of its photo
    values: frozenset[str]  # what can be chosen; empty if that is not fixed

    @classmethod
    def parse(cls, config: str) -> Labelling:
        """Read it from the labelling configuration of a project."""
        if "<!" in config:
            raise InvalidValue("The labelling configuration declares entities; leave them out.")
        try:
            root = ElementTree.fromstring(config)
        except ElementTree.ParseError as error:
            raise InvalidValue(f"The labelling configuration is no XML ({error}).") from error
        choices, image = root.find(".//Choices"), root.find(".//Image")
        if choices is None or image is None:
            raise InvalidValue("The project needs an <Image> and <Choices> about it, as for image classification.")
        values = {choice.get("value", "") for choice in choices.iter("Choice")}
        return cls(
            choices.get("name", "choice"),
            choices.get("toName", image.get("name", "image")),
            image.get("value", "$image").lstrip("$"),
            frozenset(values - {""}),
        )

    def result(self, label: str) -> list[dict[str, Any]]:
        """An answer as Label Studio shows it; nothing if it cannot be chosen."""
        if self.values and label not in self.values:
            return []
        value = {"choices": [label]}
        return [{"from_name": self.choices, "to_name": self.image, "type": "choices", "value": value}]

    def chosen(self, annotation: dict[str, Any]) -> str | None:
        """The class that an annotator chose, if it is a single one."""
        parts = annotation.get("result")
        for part in parts if isinstance(parts, list) else []:
            value = part.get("value") if isinstance(part, dict) and part.get("from_name") == self.choices else None
            chosen = value.get("choices") if isinstance(value, dict) else None
            if isinstance(chosen, list) and len(chosen) == 1 and isinstance(chosen[0], str):
                return chosen[0]
        return None


class LabelStudio:
    """The one Label Studio that photos may be fetched from."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise InvalidValue(f"--label-studio is an address such as http://localhost:8080, got {url!r}.")
        self._origin = _origin(parts)
        self._base = url.rstrip("/") + "/"
        self.token = os.environ.get(TOKEN_VARIABLE)  # or what /setup brings

    def fetch(self, address: str) -> Upload:
        """A photo by the address that a task gives it."""
        try:
            url = urljoin(self._base, address)
            inside = _origin(urlsplit(url)) == self._origin
        except ValueError:  # no address at all
            inside = False
        if not inside:
            raise BadData(f"{address} does not lie at {self._base}, and photos are fetched from nowhere else.")
        headers = {"Authorization": f"Token {self.token}"} if self.token else {}
        try:
            with _opener().open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as answer:
                content = answer.read(MAX_BYTES + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise BadData(f"{address} cannot be fetched from Label Studio ({_reason(error)}).") from error
        if len(content) > MAX_BYTES:
            raise BadData(f"{address} has more than {MAX_BYTES:,} bytes; use a smaller copy.")
        return Upload(PurePosixPath(urlsplit(url).path).name or "photo", content)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect could lead anywhere."""

    def redirect_request(self, *about: Any, **more: Any) -> None:
        return None


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = -1
    return parts.scheme, (parts.hostname or "").lower(), port


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        if 300 <= error.code < 400:
            return "it redirects elsewhere, which is not followed"
        refused = error.code in (401, 403)
        hint = f": set {TOKEN_VARIABLE}, or save the connection there again" if refused else ""
        return f"status {error.code}{hint}"
    return str(getattr(error, "reason", error))
