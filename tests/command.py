"""What a command answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str

    def document(self) -> Any:
        """Stdout as one JSON document without NaN; text before or after it would not parse."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


Call = Callable[..., Answer]
