"""What the documents name exists: files that they link to, and functions that they point at."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/results/*.md")]
CODE = [document for document in DOCUMENTS if "::" in document.read_text(encoding="utf-8")]


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


@cache
def defined(file: Path) -> frozenset[str]:
    """Functions and classes of a file, `Class.method` and what a class or module assigns."""
    found = set()

    def visit(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
                found.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    visit(ast.parse(file.read_text(encoding="utf-8")).body, "")
    return frozenset(found)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_relative_link_leads_to_a_file(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", CODE, ids=name)
def test_every_function_that_a_document_points_at_exists(document: Path) -> None:
    pointers = re.findall(r"`([\w/]+\.py)::([\w.]+)", document.read_text(encoding="utf-8"))
    assert pointers
    sources = ROOT / "src" / "triphase"
    files = {file: (ROOT if file.startswith("tests/") else sources) / file for file, _ in pointers}
    assert [file for file, path in files.items() if not path.exists()] == []
    assert [f"{file}::{what}" for file, what in pointers if what not in defined(files[file])] == []


def test_every_file_and_folder_of_the_architecture_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    files = re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)*(?:\.py|/))`", text)
    assert len(files) > 5
    assert [
        file for file in files if not (ROOT / "src" / "triphase" / file).exists() and file != "src/triphase/"
    ] == []


def test_every_command_in_the_documents_is_one() -> None:
    from triphase.cli import COMMANDS

    for document in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        for line in document.read_text(encoding="utf-8").splitlines():
            said = re.match(r"\s+triphase ([a-z]\S*)", line)
            assert said is None or said[1] in COMMANDS, f"{name(document)}: {line.strip()}"
