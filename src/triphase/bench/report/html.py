"""HTML pages from the templates beside this file."""

from __future__ import annotations

import jinja2


def render(template: str, /, **values: object) -> str:
    """A template with its values filled in; a missing value is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("triphase.bench.report", encoding="utf-8"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(template).render(values)
