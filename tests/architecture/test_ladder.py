"""The packages of `holdfast` form a ladder: each names what it may import, and nothing runs back up."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINKED = ("activities", "examples", "workflows")
"""Folders at the top that `holdfast` has links to: their modules are `holdfast.activities` and so on."""
PROGRAMS = ("gateway", "starter", "worker")
"""Files at the top that `holdfast` has links to. They, and `holdfast.__main__`, stand above the ladder."""

PURE = {
    "version": "",
    "errors": "",
    "stores": "",
    "base": "errors",
    "trust": "base",
    "budget": "base errors",
    "lineage": "base budget",
    "seals": "base errors",
    "llm": "base",
    "tools": "base errors llm trust",
    "memory": "base errors llm trust",
    "authority": "base budget errors llm tools trust",
    "agents": "authority base budget errors llm memory stores tools",
    "log": "agents authority base budget errors lineage llm memory tools trust",
    "transcript": "agents base llm log memory",
    "run": "agents authority base budget errors lineage llm log memory seals tools transcript trust version",
    "loop": "base budget llm log run seals trust",
    "schedule": "base budget llm run seals",
    "audit": "authority budget lineage llm log run tools transcript trust",
    "temporal": "base errors log loop run seals",
    "portable": "agents base errors llm log transcript",
    "evaluation": "agents authority base budget errors llm log memory run tools trust",
}
"""Packages (and modules) of the pure core, each with those it may import: of the ones above it."""

RUNTIME = {
    "extras": "",
    "namesake": "",
    "programs": "namesake",
    "commands": "",
    "config": "programs",
    "telemetry": "",
    "takeover": "",
    "llm": "config",
    "workspace": "config",
    "encryption": "config programs",
    "stores": "llm programs",
    "in_memory": "",
    "memory": "programs workspace",
    "anchors": "config",
    "devstack": "config encryption programs",
    "hardening": "devstack",
    "reading": "programs",
    "client": "config encryption programs reading",
    "composition": "anchors client config encryption hardening llm namesake programs reading stores telemetry",
    "keeping": "client composition programs reading stores",
    "worker": (
        "client composition config devstack encryption hardening keeping programs reading stores takeover telemetry"
    ),
    "audit": "anchors client programs reading",
    "portable": "audit client reading stores",
    "api": "anchors audit client composition config encryption portable programs reading",
    "evaluating": "api client devstack in_memory llm portable reading worker",
    "gateway": "anchors api audit client composition config encryption portable programs reading",
    "cli": (
        "anchors audit client commands composition config encryption evaluating keeping llm memory namesake portable "
        "programs reading takeover telemetry workspace"
    ),
}
"""Packages of `holdfast.runtime`, each with those of `holdfast.runtime` it may import. All may use the pure core."""


def modules() -> dict[str, Path]:
    """Return every module of the project by its dotted name."""
    below = [file for folder in ("holdfast", *LINKED) for file in (ROOT / folder).rglob("*.py")]
    below += [ROOT / f"{name}.py" for name in PROGRAMS]
    found: dict[str, Path] = {}
    for file in below:
        if file.resolve() == file:
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name if name.split(".")[0] == "holdfast" else f"holdfast.{name}"] = file
    return found


def imported(file: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of the project that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in full)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def arrows(package: str) -> set[tuple[str, str]]:
    """Return the imports below `package`, as names of its direct members: (importer, imported)."""
    known = modules()
    prefix = f"{package}."
    return {
        (name.removeprefix(prefix).split(".")[0], other.removeprefix(prefix).split(".")[0])
        for name, file in known.items()
        if name.startswith(prefix)
        for other in imported(file, known)
        if other.startswith(prefix)
    }


@pytest.mark.parametrize(("package", "ladder"), [("holdfast", PURE), ("holdfast.runtime", RUNTIME)])
def test_each_package_imports_only_what_it_names(package: str, ladder: dict[str, str]) -> None:
    """The tables above list exactly the imports that exist, and each entry names only packages above it."""
    names = list(ladder)
    for at, (name, allowed) in enumerate(ladder.items()):
        assert set(allowed.split()) <= set(names[:at]), f"{name} may import what is below it"
    found: dict[str, set[str]] = {}
    apart = {"runtime", "testing", "__main__", *LINKED, *PROGRAMS} if package == "holdfast" else set()
    for importer, other in arrows(package):
        if importer != other and importer not in apart:
            found.setdefault(importer, set()).add(other)
    assert found == {name: set(allowed.split()) for name, allowed in ladder.items() if allowed}


def test_every_package_says_what_it_owns() -> None:
    """Each package has a docstring that says what it owns and what it leaves to others."""
    for name, file in modules().items():
        if file.name == "__init__.py":
            docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
            assert len(docstring.split()) >= 8, f"{name} does not say what it owns"


def test_no_modules_import_each_other() -> None:
    """Modules import each other in one direction only; no circle, however long."""
    known = modules()
    graph = {name: set(imported(file, known)) - {name} for name, file in known.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle
