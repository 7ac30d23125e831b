"""The scripts in benchmarks/ start: everything that they import exists."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
AVALANCHE = {
    "avalanche_contestant",
    "against_avalanche",
}  # they need a library that only `make bench-avalanche` has
SCRIPTS = [s for s in sorted(BENCHMARKS.rglob("*.py")) if s.stem not in AVALANCHE]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_benchmark_script_can_be_imported_and_uses_names_that_exist(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = _imported(script, monkeypatch)
    assert module.__doc__, "it says what it measures"
    assert "__main__" not in script.read_text() or callable(module.main)
    missing = [
        f"line {node.lineno}: {node.value.id}.{node.attr}"
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and isinstance(used := vars(module).get(node.value.id), ModuleType)
        and not hasattr(used, node.attr)
    ]
    assert not missing


def _imported(script: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module; the scripts beside it that it imports are forgotten again."""
    monkeypatch.setattr(sys, "path", [str(script.parent), *sys.path])
    spec = importlib.util.spec_from_file_location(f"benchmark_{script.stem}", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    try:
        spec.loader.exec_module(module)
    finally:
        for name in {s.stem for s in SCRIPTS} & set(sys.modules):
            del sys.modules[name]
    return module
