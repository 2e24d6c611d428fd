"""The project's files as syntax trees; each is read and parsed once in a process, which takes a second per thousand."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def files(*folders: str) -> tuple[Path, ...]:
    """Return the Python files below these folders, without those behind links."""
    paths = (file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return tuple(sorted(file for file in paths if file.resolve() == file))


@cache
def parsed(file: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def import_statements(file: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return a file's import statements, wherever they stand in it."""
    return tuple(node for node in ast.walk(parsed(file)) if isinstance(node, ast.Import | ast.ImportFrom))


@cache
def imports(file: Path) -> frozenset[str]:
    """Return the modules that a file names in import statements."""
    modules: set[str] = set()
    for node in import_statements(file):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif node.module:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(modules)
